#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From the command to the end of the first optimizer step on rank 0: `ddprun train` beside torchrun and Python.

    tests/bench/first_step.py [--repeats 10] [--ranks 2] [--model netresdeep] [--batch-size 64] [--dataset fashion-mnist]
                              [--train-flags "..."] [--peer-flags "..."] [--json FILE]

train says when its first step ended in summary.json ("first_step_time"), the Python peer on its output; both by the
system's clock. Medians with the least and the most seen, in turn in one run, and the median of the ratios of runs that
followed each other. Run it with the Python that has torch (deploy/setup.sh prints it).
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
DEADLINE_S = 300


def run(command):
    """(when it was started, its output), after it has succeeded."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "TORCHELASTIC_"))}
    env["OMP_NUM_THREADS"] = "1"
    begin = time.time()
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=env, timeout=DEADLINE_S)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}: {done.stderr}")
    return begin, done.stdout


def ours(options, folder):
    command = [BUILD / "bin" / "ddprun", "--standalone", "--nproc-per-node", options.ranks, "train"]
    command += ["--model", options.model, "--batch-size", options.batch_size, "--dataset", options.dataset]
    begin, _ = run([*command, "--max-steps", 1, "--no-eval", "--output-dir", folder, *options.train_flags])
    return json.loads((pathlib.Path(folder) / "summary.json").read_text())["first_step_time"] - begin


def python(options):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", options.ranks]
    command += ["--master-addr=127.0.0.1", HERE / "train_peer.py", "--model", options.model]
    begin, output = run([*command, "--batch-size", options.batch_size, "--marks", 1, *options.peer_flags])
    return float(output.split("steps 1 at ")[1].split()[0]) - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--model", default="netresdeep")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--dataset", default="fashion-mnist", help="of train; the peer makes its images up")
    parser.add_argument("--train-flags", default=[], type=str.split, help="more flags of train")
    parser.add_argument("--peer-flags", default=[], type=str.split, help="more flags of train_peer.py")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    seen = {"ddprun": [], "torchrun": []}
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(options.repeats + 1):
            pair = {"ddprun": ours(options, folder), "torchrun": python(options)}
            if repeat > 0:  # the first pair warms the page cache
                for name, seconds in pair.items():
                    seen[name].append(seconds)
    for name, values in seen.items():
        print(f"{name:9} {statistics.median(values):.3f} s ({min(values):.3f} to {max(values):.3f})")
    ratios = [theirs / own for own, theirs in zip(seen["ddprun"], seen["torchrun"])]
    print(f"torchrun / ddprun: {statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})")
    if options.json:
        options.json.write_text(json.dumps({"model": options.model, "seconds": seen, "ratios": ratios}, indent=2) + "\n")


if __name__ == "__main__":
    main()
