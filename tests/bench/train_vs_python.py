#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Images a second of `ddprun ... train` beside Python's DDP under torchrun, two ranks of one thread each, in turn.

    tests/bench/train_vs_python.py [--repeats 5] [--seconds 20] [--only resnet18:128,resnet18:16,netresdeep:64]
                                   [--peers channels_last,contiguous,compile] [--pythons PATH,PATH] [--json FILE]

Each run is timed between two lines that rank 0 writes, so that start, first steps and end count on neither side. wall:
images of all ranks a second. cpu: the same by the processor time (user and system) of all processes of the run, which
says what a step costs also where the machine is not idle. Medians with the least and the most seen; what counts is the
median of the ratios of runs that followed each other, to the fastest of the peers. Run it with the Python that has
torch (deploy/setup.sh prints it), or name those of several versions of torch.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from processes import below

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("DDPRUN_BUILD_DIR", HERE.parents[1] / "build"))
RANKS = 2
WARM_STEPS = 6
DEADLINE_S = 900
# Steps a second of both ranks, roughly: they only decide how many steps fill --seconds.
STEPS_A_SECOND = {("resnet18", 128): 0.22, ("resnet18", 16): 1.5, ("netresdeep", 64): 7}
PEER_FLAGS = {"channels_last": ["--channels-last"], "contiguous": ["--no-channels-last"],
              "compile": ["--channels-last", "--compile"]}
TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(root):
    """User and system time of `root` and all below it, ended children included."""
    return sum(sum(map(int, fields[11:15])) for _, fields in below(root).values()) / TICKS


def measure(command, first, last, pattern, images):
    """(images a second, images a processor-second) between the lines that `pattern` finds for steps `first` and `last`."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "TORCHELASTIC_"))}
    env["OMP_NUM_THREADS"] = "1"
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    stopper = threading.Timer(DEADLINE_S, process.kill)
    stopper.start()
    seen, output = {}, []
    for line in process.stdout:
        output.append(line)
        match = re.search(pattern, line)
        if match and int(match[1]) in (first, last):
            seen[int(match[1])] = (time.monotonic(), processor_seconds(process.pid))
    code = process.wait()
    stopper.cancel()
    if code != 0 or len(seen) != 2:
        sys.exit(f"{' '.join(map(str, command))} ended with {code}:\n{''.join(output[-20:])}")
    return tuple(images * (last - first) / (b - a) for a, b in zip(seen[first], seen[last]))


def ours(model, batch, last, every, folder, extra):
    command = [BUILD / "bin" / "ddprun", "--standalone", "--nproc-per-node", RANKS, "train", "--model", model]
    command += ["--batch-size", batch, "--dataset", "fashion-mnist", "--max-steps", last, "--log-every", every]
    command += ["--epochs", 1000, "--no-eval", "--output-dir", folder, *extra]
    return [str(part) for part in command]


def peer(python, model, batch, first, last, flags):
    command = [python, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), "--master-addr=127.0.0.1"]
    command += [str(HERE / "train_peer.py"), "--model", model, "--batch-size", str(batch), *flags]
    return [*command, "--marks", str(first), str(last)]


def spread(values):
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def compare(model, batch, options, folder):
    rate = STEPS_A_SECOND.get((model, batch), 1)
    steps = max(2, round(options.seconds * rate))
    # Lines come each `every` steps, so both marks must be multiples of it.
    first = min(WARM_STEPS, steps)
    last = first * (1 + -(-steps // first))
    images = RANKS * batch
    peers = {f"{version} {name}": (python, PEER_FLAGS[name]) for version, python in options.versions for name in options.peers}
    seen = {name: [] for name in ["ddprun", *peers]}
    for _ in range(options.repeats):
        for name in seen:
            if name == "ddprun":
                command = ours(model, batch, last, first, folder, options.train_flags)
                pattern = r"^\[0\].* batch (\d+)/"
            else:
                python, flags = peers[name]
                command, pattern = peer(python, model, batch, first, last, flags), r"^steps (\d+)"
            seen[name].append(measure(command, first, last, pattern, images))
    best = max(peers, key=lambda name: statistics.median(wall for wall, _ in seen[name]))
    report = {"model": model, "batch": batch, "steps": last - first, "best_peer": best, "seen": seen}
    for index, unit in enumerate(("wall", "cpu")):
        ratios = [a[index] / b[index] for a, b in zip(seen["ddprun"], seen[best])]
        report[f"ratio_{unit}"] = statistics.median(ratios)
        columns = "  ".join(f"{name} {spread([r[index] for r in seen[name]])}" for name in seen)
        print(f"{model:10} {batch:4} {unit:4}  {columns}  ddprun / {best}: {statistics.median(ratios):.3f} "
              f"({min(ratios):.3f} to {max(ratios):.3f})", flush=True)
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20, help="about how long each run's timed part is")
    parser.add_argument("--only", default="resnet18:128,resnet18:16,netresdeep:64")
    parser.add_argument("--peers", default="channels_last,contiguous", type=lambda text: text.split(","))
    parser.add_argument("--pythons", default=sys.executable, type=lambda text: text.split(","))
    parser.add_argument("--train-flags", default="", type=str.split, help="more flags of train")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    version = ["-c", "import torch; print('torch', torch.__version__.partition('+')[0])"]
    options.versions = [(subprocess.check_output([python, *version], text=True).strip(), python) for python in options.pythons]
    reports = []
    with tempfile.TemporaryDirectory() as folder:
        for item in options.only.split(","):
            model, batch = item.split(":")
            reports.append(compare(model, int(batch), options, folder))
    if options.json:
        options.json.write_text(json.dumps(reports, indent=2) + "\n")


if __name__ == "__main__":
    main()
