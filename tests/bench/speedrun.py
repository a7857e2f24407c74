#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`train --recipe speedrun` beside the same recipe in PyTorch (speedrun_peer.py), in turn, one seed after the other.

    tests/bench/speedrun.py [--dataset cifar10|fashion-mnist] [--data-dir DIR] [--seeds 3] [--epochs 8] [--width 1]
                            [--batch-size 2000] [--whiten-epochs 3] [--train-flags "..."] [--peer-flags "--compile"] [--json FILE]

Accuracy is with six views of each test image. training: seconds of the steps alone. evaluation: of the six views of all
test images, with the reading of the images in `train`, from the device in Python. timer: both together, which is what
airbench's own timer counts but for the whitening (milliseconds). command: from the command to its end, with everything.
On two cores without a GPU: --dataset fashion-mnist --width 0.25 --epochs 1 --whiten-epochs 0.4 --batch-size 500 takes
minutes. Run it with the
Python that has torch (deploy/setup.sh prints it).
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

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("DDPRUN_BUILD_DIR", HERE.parents[1] / "build"))
DEADLINE_S = 3600
FIGURES = ("accuracy", "training", "evaluation", "timer", "command")


def execute(command):
    """(standard output, seconds) of one that must succeed."""
    begun = time.monotonic()
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=DEADLINE_S)
    seconds = time.monotonic() - begun
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout, seconds


def figures(result, seconds):
    training, evaluation = result["training_seconds"], result["evaluation_seconds"]
    values = (100 * result["test_accuracy"], training, evaluation, training + evaluation, seconds)
    return dict(zip(FIGURES, values))


def common(options, seed):
    flags = ["--dataset", options.dataset, "--seed", seed, "--epochs", options.epochs, "--width", options.width]
    flags += ["--batch-size", options.batch_size, "--whiten-epochs", options.whiten_epochs]
    return flags + (["--data-dir", options.data_dir] if options.data_dir else [])


def ours(options, seed, folder):
    command = [BUILD / "bin" / "train", "--recipe", "speedrun", *common(options, seed), "--output-dir", folder]
    _, seconds = execute([*command, *options.train_flags])
    return figures(json.loads((pathlib.Path(folder) / "summary.json").read_text()), seconds)


def peer(options, seed):
    out, seconds = execute([sys.executable, HERE / "speedrun_peer.py", *common(options, seed), *options.peer_flags])
    return figures(json.loads(out.splitlines()[-1]), seconds)


def show(name, seen):
    cells = []
    for figure in FIGURES:
        values = [run[figure] for run in seen]
        unit = "%" if figure == "accuracy" else "s"
        cells.append(f"{figure} {statistics.mean(values):.2f} {unit} ({min(values):.2f} to {max(values):.2f})")
    print(f"{name:7} {', '.join(cells)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=["cifar10", "fashion-mnist"], default="cifar10")
    parser.add_argument("--data-dir")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=8)
    parser.add_argument("--whiten-epochs", type=float, default=3)
    parser.add_argument("--width", type=float, default=1)
    parser.add_argument("--batch-size", type=int, default=2000)
    parser.add_argument("--train-flags", default="", type=str.split, help="more flags of train")
    parser.add_argument("--peer-flags", default="", type=str.split, help="more flags of speedrun_peer.py")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    seen = {"train": [], "PyTorch": []}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seeds):
            seen["train"].append(ours(options, seed, folder))
            seen["PyTorch"].append(peer(options, seed))
            print(f"seed {seed}: " + "; ".join(f"{name} {runs[-1]['accuracy']:.2f} % in {runs[-1]['timer']:.2f} s"
                                               for name, runs in seen.items()), flush=True)
    for name, runs in seen.items():
        show(name, runs)
    ratio = statistics.median(a["timer"] / b["timer"] for a, b in zip(seen["train"], seen["PyTorch"]))
    print(f"train / PyTorch by the timer: {ratio:.3f} (median of pairs)")
    if options.json:
        options.json.write_text(json.dumps({"seen": seen, "timer_ratio": ratio}, indent=1) + "\n")


if __name__ == "__main__":
    main()
