#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A checkpoint of ResNet-18 and its momentum: ours beside torch.save with fsync of the same, in turn, in one run.

    tests/bench/checkpoint_cost.py [--repeats 5] [--saves 5] [--batch 16] [--folder DIR] [--json FILE]

One thread trains. stall: what a step waits for because of a save. cost: by how much all steps until the checkpoint is on
the disk are longer than without a save; its share is that of one save in ten seconds. load: from the call to the newest
good checkpoint (every checksum compared; torch.load compares none) being in parameters and momentum. Medians; in brackets
the least and the most of the repeats. Run it with the Python that has torch (deploy/setup.sh prints it).
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DDPRUN_BUILD_DIR", REPO / "build"))
INTERVAL_MS = 10_000


def torch_figures(folder, saves, batch, device="cpu"):
    import torch

    sys.path.insert(0, str(REPO / "tests" / "e2e"))
    from python_models import make_model

    torch.set_num_threads(1)
    model = make_model("resnet18").to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(batch, 3, 32, 32).to(device, memory_format=torch.channels_last)
    labels = torch.randint(10, (batch,)).to(device)

    def step():
        begin = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        return 1000 * (time.perf_counter() - begin)

    def save(path):
        begin = time.perf_counter()
        with open(f"{path}.tmp", "wb") as file:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(f"{path}.tmp", path)
        return 1000 * (time.perf_counter() - begin)

    def load(path):
        begin = time.perf_counter()
        state = torch.load(path)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return 1000 * (time.perf_counter() - begin)

    for _ in range(3):
        step()
    steps, stalls = [], []
    path = f"{folder}/torch.pth"
    for _ in range(saves):
        steps += [step() for _ in range(3)]
        stalls.append(save(path))
    loads = [load(path) for _ in range(saves)]
    figures = {"step_ms": steps, "stall_ms": stalls, "cost_ms": stalls, "load_ms": loads}
    return {name: statistics.median(values) for name, values in figures.items()}


def measure(who, folder, saves, batch):
    command = {
        "ddprun": [BUILD / "tests" / "checkpoint_cost", folder, saves, batch],
        "torch": [sys.executable, __file__, "--torch", folder, "--saves", saves, "--batch", batch],
    }[who]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, check=True, env=environment)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--saves", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--folder", help="where the checkpoints go: the disk that is measured")
    parser.add_argument("--json", help="write all figures there")
    parser.add_argument("--torch", metavar="FOLDER", help="torch's figures alone, as JSON, with checkpoints in FOLDER")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="of --torch")
    options = parser.parse_args()
    if options.torch:
        print(json.dumps(torch_figures(options.torch, options.saves, options.batch, options.device)))
        return
    figures = {"ddprun": [], "torch": []}
    for _ in range(options.repeats):
        for who, seen in figures.items():
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                seen.append(measure(who, folder, options.saves, options.batch))
    for name in ("step_ms", "stall_ms", "cost_ms", "load_ms"):
        words = []
        for who, seen in figures.items():
            values = [one[name] for one in seen]
            words.append(f"{who} {statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})")
        print(f"{name:10}", "   ".join(words))
    for who, seen in figures.items():
        share = statistics.median(one["cost_ms"] for one in seen) / INTERVAL_MS
        print(f"{who}: one save in ten seconds costs {100 * share:.2f} % of the time")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
