#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A service that is killed again and again while two nodes train: how soon the nodes have it back.

    tests/bench/service_kills.py [--kills 200] [--seed 1] [--build build] [--json FILE]

Starts ddprun-rendezvous with a journal, and two nodes of one worker that train without end. Kills the service with
SIGKILL at random moments, starts it again on the same journal, and takes the time from the kill until both agents say
that they are connected again. Fails unless the same two workers, in the same round, trained on all the while.
"""

import argparse
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

PATIENCE = 60  # seconds; a wait that is not over by then fails
SAID_AGAIN = re.compile(r"connected to .* again")
STEP = re.compile(r"epoch \d+/\d+ batch \d+/")


class Node:
    """An agent whose words are kept with their times."""

    def __init__(self, command, env):
        self.process = subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
        )
        self.changed = threading.Condition()
        self.again = []  # when the agent said so
        self.steps = []  # when its worker told of a step
        self.err = []
        self.readers = [
            threading.Thread(target=self.read, args=(self.process.stdout, STEP, self.steps, None)),
            threading.Thread(target=self.read, args=(self.process.stderr, SAID_AGAIN, self.again, self.err)),
        ]
        for reader in self.readers:
            reader.start()

    def read(self, stream, pattern, times, lines):
        for line in stream:
            with self.changed:
                if lines is not None:
                    lines.append(line)
                if pattern.search(line):
                    times.append(time.monotonic())
                    self.changed.notify_all()

    def wait_for(self, what):
        with self.changed:
            if not self.changed.wait_for(what, PATIENCE):
                raise AssertionError(f"an agent did not get on within {PATIENCE} s; it said: {''.join(self.err)}")

    def worker(self):
        """The pid of its worker: the only one among its descendants that runs another program."""

        def descend(pid):
            tasks = pathlib.Path(f"/proc/{pid}/task").glob("*/children")
            for child in [child for task in tasks for child in task.read_text().split()]:
                yield child
                yield from descend(child)

        own = os.readlink(f"/proc/{self.process.pid}/exe")
        found = [pid for pid in descend(self.process.pid) if os.readlink(f"/proc/{pid}/exe") != own]
        assert len(found) == 1, found
        return found[0]

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(PATIENCE)
        for reader in self.readers:
            reader.join()


class Service:
    def __init__(self, program, journal, env):
        self.command = [program, "--host", "127.0.0.1", "--journal", journal]
        self.env = env
        self.start(0)

    def start(self, port):
        self.process = subprocess.Popen(
            [*self.command, "--port", str(port)], env=self.env, stdout=subprocess.PIPE, text=True
        )
        said = self.process.stdout.readline().split()
        assert said, "the service did not start; what it said is above"
        self.target = said[-1]
        self.port = int(self.target.rsplit(":", 1)[1])

    def kill_and_start(self):
        """The time of the kill."""
        killed = time.monotonic()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.start(self.port)
        return killed

    def end(self):
        self.process.kill()
        self.process.wait()


def longest_pause(times, begin, end):
    inside = [begin, *(t for t in times if begin < t < end), end]
    return max(b - a for a, b in zip(inside, inside[1:]))


def measure(build, kills, seed):
    chance = random.Random(seed)
    env = dict(os.environ, DDPRUN_TOKEN=os.urandom(32).hex(), OMP_NUM_THREADS="1")
    ddprun = str(pathlib.Path(build) / "bin" / "ddprun")
    with tempfile.TemporaryDirectory() as folder:
        service = Service(ddprun + "-rendezvous", f"{folder}/journal", env)
        train = ["train", "--dataset", "synthetic", "--batch-size", "8", "--epochs", "100000", "--no-eval"]
        command = [ddprun, "--nnodes", "2", "--rdzv-id", "kills", "--rdzv-endpoint", service.target, *train]
        nodes = []
        try:
            for i in range(2):
                nodes.append(Node([*command, "--log-every", "1", "--output-dir", f"{folder}/{i}"], env))
            for node in nodes:
                node.wait_for(lambda node=node: len(node.steps) >= 20)
            workers = [node.worker() for node in nodes]
            calm_begin = time.monotonic()
            for node in nodes:
                count = len(node.steps)
                node.wait_for(lambda node=node, count=count: len(node.steps) >= count + 100)
            calm_end = time.monotonic()
            back = []
            begin = time.monotonic()
            for _ in range(kills):
                before = [len(node.steps) for node in nodes]
                time.sleep(chance.uniform(0, 0.5))
                killed = service.kill_and_start()
                # One in five comes while the nodes are still on their way back from the one before.
                if chance.random() < 0.2:
                    time.sleep(chance.uniform(0, 0.1))
                    killed = service.kill_and_start()
                said = []
                for node in nodes:
                    node.wait_for(lambda node=node, killed=killed: node.again and node.again[-1] > killed)
                    said.append(next(t for t in node.again if t > killed))
                back.append(max(said) - killed)
                for node, count in zip(nodes, before):
                    node.wait_for(lambda node=node, count=count: len(node.steps) > count)
            end = time.monotonic()
            assert [node.worker() for node in nodes] == workers, "a worker was started again"
            for node in nodes:
                assert node.process.poll() is None, "an agent ended: " + "".join(node.err)
                assert not any("round 2" in line for line in node.err), "".join(node.err)
            calm = [longest_pause(node.steps, calm_begin, calm_end) for node in nodes]
            pauses = [longest_pause(node.steps, begin, end) for node in nodes]
            steps = [sum(begin < t < end for t in node.steps) for node in nodes]
            return {
                "kills": kills,
                "back_s": {
                    "median": statistics.median(back),
                    "p95": sorted(back)[int(0.95 * (len(back) - 1))],
                    "max": max(back),
                },
                "within_1_s": sum(t <= 1.0 for t in back),
                "steps": min(steps),
                "longest_pause_between_steps_s": max(pauses),
                "longest_pause_before_any_kill_s": max(calm),
                "journal_bytes": sum(entry.stat().st_size for entry in os.scandir(f"{folder}/journal")),
            }
        finally:
            for node in nodes:
                node.end()
            service.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--build", default=str(pathlib.Path(__file__).resolve().parents[2] / "build"))
    parser.add_argument("--json")
    arguments = parser.parse_args()
    figures = measure(arguments.build, arguments.kills, arguments.seed)
    back = figures["back_s"]
    print(f"{figures['kills']} kills, {figures['steps']} training steps meanwhile")
    print(f"control back after {back['median']:.3f} s (median), {back['p95']:.3f} s (p95), {back['max']:.3f} s (worst)")
    print(f"within 1 s: {figures['within_1_s']} of {figures['kills']}")
    print(
        f"longest pause between two steps: {figures['longest_pause_between_steps_s']:.3f} s "
        f"(before any kill: {figures['longest_pause_before_any_kill_s']:.3f} s)"
    )
    print(f"journal at the end: {figures['journal_bytes']} bytes")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
