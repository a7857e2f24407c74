#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank that suddenly needs twice as long for a step: after how many steps it is named.

    tests/bench/slow_rank.py [--times 20] [--seed 1] [--build build] [--json FILE]

Two ranks train on this machine. A random one spends half of its time in a signal handler (tests/testing/slow_shim.c), until
`train` names it; then it runs freely until `train` says that it is as fast as its peers. Counted are the steps that began slow.
Exit code 1 if another rank was named, or one while none was slow. It wants two idle CPUs: a rank that waits for a CPU is judged
by up to 128 steps instead of 14.
"""

import argparse
import json
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from dead_rank import last_number, writers

HERE = pathlib.Path(__file__).resolve().parent
PATIENCE = 120  # seconds; a wait that is not over by then fails
LOOK = 0.05  # whoever looks takes a CPU from the ranks
NAMED = re.compile(r"rank (\d) on host \S+ needs (\S+) times as long for a step as its peers")
FAST_AGAIN = re.compile(r"rank (\d) is as fast as its peers again")

# Of slow_shim.c: from one to the next the rank is slow.
TOGGLE = signal.SIGRTMIN + 3


class Run:
    def __init__(self, build, folder):
        self.output = pathlib.Path(folder, "run")
        training = "--dataset synthetic --samples 100000 --model simple-cnn --batch-size 512 --epochs 1000 --no-eval --device cpu"
        training += f" --no-metrics --log-samples --log-every 100000 --output-dir {self.output}"
        self.node = subprocess.Popen(
            [f"{build}/bin/ddprun", "--standalone", "--nproc-per-node", "2", f"{build}/bin/train", *training.split()],
            env={**os.environ, "OMP_NUM_THREADS": "1", "LD_PRELOAD": f"{build}/tests/libslow_shim.so"},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.lines = []  # (line, the step at which it came)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.node.stdout:
            self.lines.append((line, self.step()))

    def step(self):
        return min(last_number(self.output / f"samples-{rank}.jsonl") for rank in range(2))

    def find(self, pattern):
        """(match, step) of each line with that pattern."""
        return [(match, step) for line, step in self.lines[:] if (match := pattern.search(line))]

    def wait(self, condition, what):
        deadline = time.monotonic() + PATIENCE
        while not (result := condition()):
            if time.monotonic() > deadline or self.node.poll() is not None:
                raise SystemExit(f"{what}: did not come\n" + "".join(line for line, _ in self.lines)[-2000:])
            time.sleep(LOOK)
        return result

    def make_steps(self, count):
        goal = self.step() + count
        self.wait(lambda: self.step() >= goal, f"{count} steps")

    def end(self):
        self.node.send_signal(signal.SIGTERM)
        self.node.wait(PATIENCE)


def name_one(run, rank, times):
    """The rank that was named, the factor that was said, and after how many steps."""
    pid = writers(run.output)[rank]
    before = run.step()
    os.kill(pid, TOGGLE)
    run.wait(lambda: len(run.find(NAMED)) > times, "its name")
    os.kill(pid, TOGGLE)
    named, step = run.find(NAMED)[times]
    run.wait(lambda: len(run.find(FAST_AGAIN)) > times, "that it is fast again")
    return int(named[1]), float(named[2]), step - before


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--build", default=str(HERE.parents[1] / "build"))
    parser.add_argument("--json")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="slow-rank-") as folder:
        run = Run(options.build, folder)
        run.wait(lambda: run.step() > 50, "fifty steps")
        right, steps, factors = True, [], []
        for i in range(options.times):
            rank = rng.randrange(2)
            named, factor, took = name_one(run, rank, i)
            right = right and named == rank
            steps.append(took)
            factors.append(factor)
            run.make_steps(20 + rng.randrange(20))
        right = right and len(run.find(NAMED)) == options.times
        run.end()
    report = {
        "times": len(steps),
        "named after steps, p50": statistics.median(steps),
        "least": min(steps),
        "most": max(steps),
        "factor that was said, p50": statistics.median(factors),
        "only the slow rank was named": right,
    }
    for name, value in report.items():
        print(f"{name}: {value}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
