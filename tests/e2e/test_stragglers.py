# SPDX-License-Identifier: Apache-2.0
"""A rank that is slower than its peers is named, and its node leaves for a spare where that is wanted."""

import contextlib
import json
import os
import re
import signal
import sys
import threading

import pytest

from conftest import BIN, DDPRUN, TRAIN, clean_environment, run, start, wait_for, worker_of

pytestmark = pytest.mark.skipif(not (BIN / "train").exists(), reason="built without LibTorch")

DEADLINE_S = 120
# A step takes several times as long as a slowed process is stopped for.
PROGRAM = [TRAIN, "--dataset", "synthetic", "--samples", 100000, "--model", "simple-cnn", "--batch-size", 128]
PROGRAM += ["--epochs", 1000, "--max-steps", 100000, "--log-every", 1, "--no-eval"]
SENTENCE = re.compile(r"rank 1 on host \S+ needs (\S+) times as long for a step as its peers; look at that machine")


def status(port):
    answer = run([BIN / "ddpctl", "status", "--json", "--rdzv-endpoint", f"127.0.0.1:{port}"])
    return json.loads(answer.stdout)["runs"][0] if answer.returncode == 0 else None


# Stops and continues a process in slices that are short beside a step: it runs for a fifth of the time. Where it may,
# it takes precedence over the processes that load the machine.
SLOW = """
import os, signal, sys, time
try:
    os.setpriority(os.PRIO_PROCESS, 0, -20)
except OSError:
    pass
print("begins", flush=True)
while True:
    os.kill(int(sys.argv[1]), signal.SIGSTOP)
    time.sleep(0.012)
    os.kill(int(sys.argv[1]), signal.SIGCONT)
    time.sleep(0.003)
"""


@contextlib.contextmanager
def slowed(pid):
    process = start([sys.executable, "-c", SLOW, pid])
    try:
        assert process.stdout.readline() == "begins\n"
        yield
    finally:
        process.kill()
        process.communicate()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def step_of(line):
    """The step in a line of `train` that it wrote about a step, counted in its epoch."""
    found = re.search(r"batch (\d+)/", line)
    return int(found.group(1)) if found else None


class Lines:
    """The lines of a node's console, as they come."""

    def __init__(self, stream):
        self.lines = []
        self.thread = threading.Thread(target=lambda: self.lines.extend(iter(stream.readline, "")), daemon=True)
        self.thread.start()

    def last_step(self):
        return next((step for line in reversed(self.lines[:]) if (step := step_of(line))), 0)

    def find(self, pattern):
        return next((i for i, line in enumerate(self.lines[:]) if pattern.search(line)), None)


def test_a_slow_rank_is_named_until_it_is_fast_again(tmp_path, port):
    job = start(
        [DDPRUN, "--rdzv-endpoint", f"127.0.0.1:{port}", "--nproc-per-node", 2]
        + [*PROGRAM, "--output-dir", tmp_path / "out"]
    )
    lines = Lines(job.stdout)
    try:
        wait_for("30 steps", lambda: lines.last_step() > 30, DEADLINE_S)
        assert lines.find(re.compile("times as long")) is None, lines.lines
        with slowed(worker_of(1)):
            # After how many steps: tests/bench/slow_rank.py. On a busy machine steps that were interrupted do not count.
            named = wait_for("its name", lambda: lines.find(SENTENCE), DEADLINE_S)
            assert float(SENTENCE.search(lines.lines[named]).group(1)) >= 1.5
            seen = wait_for("the status", lambda: (status(port)["progress"] or {}).get("slow_rank") == 1, DEADLINE_S)
            assert seen
            text = run([BIN / "ddpctl", "status", "--rdzv-endpoint", f"127.0.0.1:{port}"]).stdout
            assert re.search(r"  rank 1 on host \S+ needs \S+ times as long for a step as its peers\n", text), text
        again = re.compile("rank 1 is as fast as its peers again")
        wait_for("its end", lambda: lines.find(again), DEADLINE_S)
        wait_for("the status", lambda: status(port)["progress"]["slow_rank"] is None, DEADLINE_S)
    finally:
        job.terminate()
        job.wait(DEADLINE_S)


def test_its_node_leaves_for_a_spare(tmp_path, port):
    service = start([BIN / "ddprun-rendezvous", "--port", port, "--event-log", tmp_path / "events"])
    job = [
        start(
            [DDPRUN, "--nnodes", 2, "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "job", "--evict-stragglers"]
            + ["--rdzv-conf", "is_host=false", *PROGRAM, "--output-dir", tmp_path / "out"],
            env=clean_environment(OMP_NUM_THREADS="1"),
        )
        for _ in range(3)
    ]
    lines = [Lines(one.stdout) for one in job]
    try:
        wait_for("30 steps", lambda: max(each.last_step() for each in lines) > 30, DEADLINE_S)
        with slowed(worker_of(1)):
            gone = wait_for("the end of a node", lambda: [one for one in job if one.poll() is not None], DEADLINE_S)
        assert [one.returncode for one in gone] == [0]
        said = gone[0].stderr.read()
        assert "was drained by --evict-stragglers: rank 1 on host" in said, said
        wait_for("the next round", lambda: (now := status(port)) and now["round"] == 2 and now["world_size"] == 2)
        assert status(port)["restarts_used"] == 0
        events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
        slow = [event for event in events if event["event"] == "rank.slow"]
        assert slow[0]["rank"] == 1 and "takes its place" in slow[0]["reason"], slow
    finally:
        for one in [*job, service]:
            one.terminate()
        for one in [*job, service]:
            one.wait(DEADLINE_S)
