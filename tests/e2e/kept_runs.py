# SPDX-License-Identifier: Apache-2.0
"""Runs of kept_training.py and kept_trainer.py, whose ranks log their steps into samples-RANK.jsonl."""

import json
import pathlib

import torch
from conftest import DDPRUN, clean_environment, start, wait_for

PROGRAM = pathlib.Path(__file__).with_name("kept_training.py")
STEPS = 100


class Interrupted(Exception):
    """As a collective's, when its round is over."""


class OneRank:
    """A round of one rank."""

    step, rank, world_size = 0, 0, 1

    def count_to(self, step):
        self.step = step


def training(folder, *flags, pause=0.01, program=PROGRAM, steps=STEPS, preload="torch", **environ):
    folder.mkdir(exist_ok=True)
    words = [DDPRUN, "--preload", preload, *flags, program, folder, steps, pause]  # an import takes two seconds of CPU time
    return start(words, env=clean_environment(OMP_NUM_THREADS="1", **environ))


def finished(process):
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err + out
    return err


def logs(folder):
    """[(step, pid)] of each rank."""
    found = {}
    for log in folder.glob("samples-*.jsonl"):
        entries = [json.loads(line) for line in log.read_text().split("\n")[:-1]]
        if entries:
            found[int(log.stem[8:])] = [(entry["step"], entry["pid"]) for entry in entries]
    return found


def reach(folder, process, ranks, more):
    """When each rank has made so many more steps: the process of each."""
    goal = max((entries[-1][0] for entries in logs(folder).values()), default=0) + more

    def there():
        last = {rank: entries[-1] for rank, entries in logs(folder).items() if rank < ranks}
        return last if len(last) == ranks and all(step >= goal for step, _ in last.values()) else None

    try:
        last = wait_for(f"step {goal}", lambda: there() or process.poll() is not None, 100)
    except AssertionError as late:
        process.terminate()
        raise AssertionError(f"{late}: { {rank: entries[-1] for rank, entries in logs(folder).items()} } {process.communicate(timeout=60)}") from late
    assert process.poll() is None, process.communicate()
    return {rank: pid for rank, (_, pid) in last.items()}


def assert_objects_stay(folder):
    """In each process one DistributedDataParallel for all rounds, and one process group where torch can reconfigure it."""
    kept = ["ddp"] + ["group"] * hasattr(torch.distributed.ProcessGroupGloo, "reconfigure")
    objects = {}
    for log in folder.glob("samples-*.jsonl"):
        for line in log.read_text().split("\n")[:-1]:
            entry = json.loads(line)
            objects.setdefault(entry["pid"], set()).add(tuple(entry[name] for name in kept))
    assert all(len(seen) == 1 for seen in objects.values()), objects
