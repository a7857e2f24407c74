# SPDX-License-Identifier: Apache-2.0
"""Workers that are kept, under the real agent: ranks die and nodes come and go, and the training goes on in place."""

import collections
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
import torch
from torch import nn
from conftest import DDPRUN, PYTHON, TRAIN, clean_environment, free_port, processes_of_this_session

DEADLINE = 120
SAMPLES = 512
TRAINING = f"--dataset synthetic --samples {SAMPLES} --batch-size 8 --device cpu --no-eval --log-samples".split()

# Says where it is, and is kept.
KEPT = f"""
import os, sys, time
sys.path.insert(0, {PYTHON!r})
from ddprun import Rounds
def cpus():  # of all threads
    return sorted(set(cpu for task in os.listdir("/proc/self/task") for cpu in os.sched_getaffinity(int(task))))

parked = os.environ.get("DDPRUN_PARKED") == "1"
rounds = Rounds()
rounds.keep()
while True:
    if parked:
        print("parked pid", os.getpid(), flush=True)
        os.environ.update(rounds.wait_round())
        parked = False
    print("round", os.environ["DDPRUN_ROUND"], "rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "pid", os.getpid(), "cpus", cpus(), flush=True)
    rounds.broken(timeout=1000)
    rounds.left()
    os.environ.update(rounds.wait_round())
"""


class Node:
    def __init__(self, folder, name, flags, program):
        self.output = folder / f"{name}.log"
        with open(self.output, "wb") as log:
            self.process = subprocess.Popen(
                [DDPRUN, *map(str, flags), *map(str, program)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env=clean_environment(OMP_NUM_THREADS="1"),
            )  # fmt: skip

    def text(self):
        return self.output.read_text(errors="replace")

    def wait(self):
        return self.process.wait(DEADLINE)


class Nodes:
    """They are ended with the test."""

    def __init__(self, folder):
        self.folder = folder
        self.all = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for node in self.all:
            if node.process.poll() is None:
                node.process.kill()
                node.process.wait()

    def start(self, flags, program):
        self.all.append(Node(self.folder, f"node-{len(self.all)}", flags, program))
        return self.all[-1]

    def until(self, condition, what):
        deadline = time.monotonic() + DEADLINE
        while True:
            result = condition()
            if result:
                return result
            assert time.monotonic() < deadline, (what, [node.text()[-3000:] for node in self.all])
            time.sleep(0.01)


def parked_worker(node):
    """The process of one that has said that it can be kept."""
    found = re.search(r"parked pid (\d+)", node.text())
    return int(found[1]) if found else None


def trainers(run):
    """The process of each rank: the one that has its log of samples open."""
    pids = {}
    for pid, command in processes_of_this_session():
        if not command.startswith(TRAIN):
            continue
        try:
            for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
                found = re.search(r"/samples-(\d+)\.jsonl$", os.readlink(fd))
                if found and os.readlink(fd).startswith(str(run)):
                    pids[int(found[1])] = int(pid)
        except OSError:
            continue
    return pids


def steps(run):
    """The latest that each rank has begun."""
    latest = {}
    for log in run.glob("samples-*.jsonl"):
        lines = log.read_bytes().split(b"\n")[:-1]
        if lines:
            latest[int(log.stem[8:])] = json.loads(lines[-1])["step"]
    return latest


def check_samples(run, epochs):
    """Each image exactly once in each epoch."""
    seen = collections.defaultdict(collections.Counter)
    for log in run.glob("samples-*.jsonl"):
        for line in log.read_text().splitlines():
            entry = json.loads(line)
            seen[entry["epoch"]].update(entry["images"])
    assert sorted(seen) == list(range(1, epochs + 1))
    for epoch, images in seen.items():
        assert images == {image: 1 for image in range(SAMPLES)}, epoch


def model_of(run):
    return (run / "cifar_net.pth").read_bytes()


def with_dropout(path):
    """What it drops is drawn by each rank for itself."""
    layers = [nn.Conv2d(3, 32, 3), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Dropout(0.5), nn.Linear(1568, 10)]
    torch.jit.script(nn.Sequential(*layers)).save(path)
    return path


@pytest.mark.parametrize("spares, model", [(1, "dropout"), *(pytest.param(spares, "netresdeep", marks=pytest.mark.nightly) for spares in (0, 1))])
def test_killed_ranks_leave_no_trace(tmp_path, spares, model):
    training = [TRAIN, *TRAINING, "--deterministic", "--epochs", "4"]
    training += ["--model-file", with_dropout(tmp_path / "net.pt")] if model == "dropout" else ["--model", model]
    with Nodes(tmp_path) as nodes:
        plain = nodes.start(["--standalone", "--nproc-per-node", 3], [*training, "--output-dir", tmp_path / "plain"])
        assert plain.wait() == 0, plain.text()
        run = tmp_path / "run"
        node = nodes.start(
            ["--standalone", "--nproc-per-node", 3, "--max-restarts", 9, "--spares", spares],
            [*training, "--output-dir", run],
        )
        for victim in (1, 0, 2, 0):
            before = nodes.until(lambda: len(found := trainers(run)) == 3 and found, "three ranks")
            at = max(steps(run).values(), default=0)
            nodes.until(lambda at=at: min(steps(run).values(), default=0) >= at + 2, "two steps")
            os.kill(before[victim], signal.SIGKILL)
            after = nodes.until(
                lambda victim=victim, before=before: (
                    len(found := trainers(run)) == 3 and found[victim] != before[victim] and found
                ),
                "another rank in its place",
            )
            assert {rank: pid for rank, pid in after.items() if rank != victim} == {
                rank: pid for rank, pid in before.items() if rank != victim
            }, "survivors stay"
        assert node.wait() == 0, node.text()
        assert "restart 4 of 9 as round 5" in node.text()
    check_samples(run, 4)
    assert model_of(run) == model_of(tmp_path / "plain")
    assert not processes_of_this_session()


def test_a_world_grows_and_shrinks_while_it_trains(tmp_path):
    port = free_port()
    flags = ["--nnodes", "2:3", "--nproc-per-node", 1, "--master-addr", "127.0.0.1", "--master-port", port,
             "--insecure", "--max-restarts", 9, "--last-call", 0.5]  # fmt: skip
    run = tmp_path / "run"
    training = [TRAIN, *TRAINING, "--model", "netresdeep", "--epochs", "16", "--output-dir", run]
    with Nodes(tmp_path) as nodes:
        first = [nodes.start([*flags, "--node-rank", rank], training) for rank in range(2)]
        healthy = nodes.until(lambda: len(found := trainers(run)) == 2 and found, "two ranks")
        nodes.until(lambda: min(steps(run).values(), default=0) >= 5, "five steps")
        third = nodes.start([*flags, "--node-rank", 2], training)
        grown = nodes.until(lambda: len(found := trainers(run)) == 3 and found, "three ranks")
        assert {rank: grown[rank] for rank in healthy} == healthy
        at = max(steps(run).values())
        nodes.until(lambda: min(steps(run).values()) >= at + 3, "three steps of all")
        third.process.send_signal(signal.SIGTERM)
        assert third.wait() == 143
        nodes.until(lambda: trainers(run) == healthy, "the same two ranks")
        assert [node.wait() for node in first] == [0, 0], first[0].text()
        notes = first[0].text()
        assert "round 2 begins: node " in notes and " has joined" in notes
        assert "restart 1 of 9 as round 3" in notes, "a node that joins uses no restart"
    check_samples(run, 16)


@pytest.mark.parametrize("on_join", ["standby", "restart"])
def test_a_join_does_what_was_asked_for(tmp_path, on_join):
    port = free_port()
    flags = ["--nnodes", "1:2", "--nproc-per-node", 1, "--master-addr", "127.0.0.1", "--master-port", port,
             "--insecure", "--last-call", 0.5, "--on-join", on_join]  # fmt: skip
    program = ["--no-python", sys.executable, "-c", KEPT]
    with Nodes(tmp_path) as nodes:
        first = nodes.start([*flags, "--node-rank", 0], program)
        nodes.until(lambda: "round 1 rank 0 of 1" in first.text(), "the first round")
        second = nodes.start([*flags, "--node-rank", 1], program)
        if on_join == "standby":
            nodes.until(lambda: "standing by" in second.text(), "a spare")
            assert "round 2" not in first.text()
        else:
            nodes.until(lambda: "of 2" in first.text() and "of 2" in second.text(), "a round of both")


def test_any_program_can_be_kept(tmp_path):
    with Nodes(tmp_path) as nodes:
        node = nodes.start(
            ["--standalone", "--nproc-per-node", 2, "--max-restarts", 9, "--spares", 1, "--no-python"],
            [sys.executable, "-c", KEPT],
        )

        def pids(number):
            found = re.findall(rf"round {number} rank (\d) of 2 pid (\d+)", node.text())
            return dict(found) if len(found) == 2 else None

        one = nodes.until(lambda: pids(1), "the first round")
        os.kill(int(one["0"]), signal.SIGKILL)
        two = nodes.until(lambda: pids(2), "the second round")
        assert two["1"] == one["1"] and two["0"] != one["0"]
        node.process.send_signal(signal.SIGTERM)
        assert node.wait() == 143
        assert not processes_of_this_session()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU")
def test_a_spare_has_the_cpus_of_the_rank_whose_place_it_takes(tmp_path):
    with Nodes(tmp_path) as nodes:
        node = nodes.start(
            ["--standalone", "--nproc-per-node", 2, "--max-restarts", 9, "--spares", 1]
            + ["--numa-binding", "exclusive", "--no-python"],
            [sys.executable, "-c", KEPT],
        )

        def bound(number):
            found = re.findall(rf"round {number} rank (\d) of 2 pid (\d+) cpus (\[.*\])", node.text())
            return {rank: (int(pid), cpus) for rank, pid, cpus in found} if len(found) == 2 else None

        one = nodes.until(lambda: bound(1), "the first round")
        assert one["0"][1] != one["1"][1]
        spare = nodes.until(lambda: parked_worker(node), "a spare")
        os.kill(one["1"][0], signal.SIGKILL)
        two = nodes.until(lambda: bound(2), "the second round")
        assert two["0"] == one["0"]
        assert two["1"] == (spare, one["1"][1])
