#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A third node that joins two that train, and leaves again, many times: how long the others make no step.

    tests/bench/joins.py [--joins 50] [--python] [--build build] [--json FILE]

Three agents on this machine, of one rank each, train NetResDeep on synthetic images with Gloo and --nnodes 2:3. The third
is started, trains for some steps, is ended by SIGTERM, and started again. Of each join, and of each end, the longest time
between two steps of rank 0 is taken, from the start (the signal) until all ranks have made three steps together. At the end
every epoch's samples are counted: each image exactly once, whatever the world's size was. The two nodes that stay must be the
same processes all the time. Exit code 1 if one of these does not hold.

--python: ranks of tests/e2e/kept_training.py instead, which is Python and uses ddprun.rounds(); no samples are counted. A rank that
does not leave its round in time is killed, so that the two nodes' processes are not the same any more.
"""

import argparse
import bisect
import collections
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from dead_rank import environment, free_port, last_number, writers

HERE = pathlib.Path(__file__).resolve().parent
PATIENCE = 120  # seconds; a wait that is not over by then fails
LOOK = 0.001
SAMPLES = 1024


class Steps:
    """When rank 0 was first seen at each of its steps."""

    def __init__(self, folder):
        self.path = f"{folder}/samples-0.jsonl"
        self.times = []
        self.step = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.follow, daemon=True)
        self.thread.start()

    def follow(self):
        while not self.ended.wait(LOOK):
            now = last_number(self.path)
            if now != self.step:
                self.times.append(time.monotonic())
                self.step = now

    def gaps(self, since):
        """From the latest step before `since` on."""
        newest = last_number(self.path)
        while self.step < newest:  # the thread is a moment behind
            time.sleep(LOOK)
        times = list(self.times)
        times = times[max(0, bisect.bisect_left(times, since) - 1) :]
        return [after - before for before, after in zip(times, times[1:])]

    def end(self):
        self.ended.set()
        self.thread.join()


class Run:
    def __init__(self, build, folder, python):
        self.folder = folder
        self.output = pathlib.Path(folder, "run")
        flags = f"--nnodes 2:3 --nproc-per-node 1 --master-addr 127.0.0.1 --master-port {free_port()} --insecure"
        flags += " --max-restarts 1000000 --last-call 0.1"
        training = f"--dataset synthetic --samples {SAMPLES} --epochs 100000 --batch-size 8 --model netresdeep --device cpu"
        training += f" --no-metrics --no-eval --log-samples --output-dir {self.output}"
        self.training = [f"{build}/bin/train", *training.split()]
        if python:
            self.output.mkdir()
            flags += " --preload torch"
            self.training = [str(HERE.parent / "e2e" / "kept_training.py"), str(self.output), "1000000000"]
        self.command = [f"{build}/bin/ddprun", *flags.split(), "--node-rank"]
        self.nodes = [self.start(0), self.start(1)]

    def start(self, node):
        with open(f"{self.folder}/node-{node}.log", "ab") as log:
            return subprocess.Popen(
                [*self.command, str(node), *self.training],
                env={**environment(), "XDG_RUNTIME_DIR": self.folder},
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def steps(self, ranks):
        return [last_number(self.output / f"samples-{rank}.jsonl") for rank in range(ranks)]

    def wait(self, condition, what):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline or any(node.poll() is not None for node in self.nodes):
                notes = pathlib.Path(self.folder, "node-0.log").read_text(errors="replace")[-2000:]
                raise SystemExit(f"{what}: did not come\n{notes}")
            time.sleep(0.005)

    def all_go_on(self, ranks):
        goal = max(self.steps(ranks)) + 3
        self.wait(lambda: min(self.steps(ranks)) >= goal, f"three steps of {ranks} ranks")

    def end(self):
        for node in self.nodes:
            node.send_signal(signal.SIGTERM)
        for node in self.nodes:
            node.wait(PATIENCE)


def samples_are_whole(output):
    """Each image once in each epoch; in the one that was ended at most once."""
    seen = collections.defaultdict(collections.Counter)
    for log in output.glob("samples-*.jsonl"):
        for line in log.read_text().splitlines():
            entry = json.loads(line)
            seen[entry["epoch"]].update(entry["images"])
    last = max(seen)
    wrong = [epoch for epoch, images in seen.items() if max(images.values()) > 1 or (epoch < last and len(images) != SAMPLES)]
    print(f"samples: {last - 1} whole epochs of {SAMPLES}; epochs with an image missing or twice: {wrong or 'none'}")
    return not wrong


def describe(stalls, step):
    """Milliseconds beyond a usual step."""
    ordered = sorted(1000 * (stall - step) for stall in stalls)
    return {
        "p50": round(statistics.median(ordered)),
        "p90": round(ordered[int(0.9 * (len(ordered) - 1))]),
        "most": round(ordered[-1]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--joins", type=int, default=50)
    parser.add_argument("--python", action="store_true", help="ranks in Python, kept by ddprun.rounds()")
    parser.add_argument("--build", default=str(HERE.parents[1] / "build"))
    parser.add_argument("--json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="joins-") as folder:
        run = Run(options.build, folder, options.python)
        run.wait(lambda: min(run.steps(2)) >= 20, "twenty steps")
        healthy = writers(run.output)
        steps = Steps(run.output)
        joins, ends, alone = [], [], []
        stayed = True
        for _ in range(options.joins):
            began = time.monotonic()
            third = run.start(2)
            run.wait(lambda: len(writers(run.output)) == 3, "a third rank")
            run.all_go_on(3)
            joins.append(max(steps.gaps(began)))
            began = time.monotonic()
            third.send_signal(signal.SIGTERM)
            third.wait(PATIENCE)
            run.wait(lambda: len(writers(run.output)) == 2, "two ranks")
            run.all_go_on(2)
            ends.append(max(steps.gaps(began)))
            stayed = stayed and writers(run.output) == healthy
            print(f"join {len(joins)}: {joins[-1]:.3f} s, its end: {ends[-1]:.3f} s", file=sys.stderr, flush=True)
            began = time.monotonic()
            goal = min(run.steps(2)) + 10
            run.wait(lambda goal=goal: min(run.steps(2)) >= goal, "ten steps of two ranks")
            alone += steps.gaps(began)
        steps.end()
        run.end()
        step = statistics.median(alone)
        report = {
            "joins": len(joins),
            "step of two ranks (ms)": round(1000 * step, 1),
            "stall of a join beyond a step (ms)": describe(joins, step),
            "stall of an end beyond a step (ms)": describe(ends, step),
            "the two nodes' workers are the same processes": stayed,
        }
        for name, value in report.items():
            print(f"{name}: {value}")
        whole = options.python or samples_are_whole(run.output)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0 if stayed and whole else 1


if __name__ == "__main__":
    sys.exit(main())
