#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills of the service, and of rank 0's whole node, while Python's process groups come and go.

    tests/chaos/store_kills.py [--kills 200] [--seed 1] [--build build] [--json FILE]

Starts ddprun-rendezvous with a journal and three nodes of one worker each. The workers make a process group over Gloo by
torch's client of the agents' store, reduce, end it, and begin anew. Half of the kills are of the service, which is
started again on its journal: the workers must stay the same processes. The others are of all processes of the node that
has rank 0; another node is started in its place, and the job goes on with a restart. Prints the time from each kill to
the next process group. Fails if the job ends before it is told to, or a process is left.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "bench"))
from service_kills import Service  # noqa: E402

PATIENCE_S = 90
BUILD = os.environ.get("DDPRUN_BUILD_DIR", str(HERE.parents[1] / "build"))
WORKER = """
import datetime, os, pathlib, time
import torch, torch.distributed as dist

folder = pathlib.Path(os.environ["KILLS_FOLDER"])
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if rank == 0:
    mark = folder / "rank0.new"
    mark.write_text(os.environ["TORCHELASTIC_RESTART_COUNT"] + " " + os.environ["KILLS_NODE"])
    mark.rename(folder / "rank0")
cycle, go_on = 0, True
while go_on:
    cycle += 1
    store = next(dist.rendezvous("env://"))[0]
    dist.init_process_group("gloo", store=dist.PrefixStore(str(cycle), store), rank=rank, world_size=world,
                            timeout=datetime.timedelta(seconds=60))
    said = torch.tensor([float(rank + 1), float((folder / "end").exists())])
    dist.all_reduce(said)
    assert said[0] == world * (world + 1) / 2, said
    go_on = said[1] == 0
    dist.destroy_process_group()
    if rank == 0:
        with open(folder / "cycles", "a") as file:
            print(time.monotonic(), os.getpid(), os.environ["TORCHELASTIC_RESTART_COUNT"], file=file)
"""


def descendants(pid):
    found = [pid]
    with contextlib.suppress(OSError):
        for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
            for child in task.read_text().split():
                found += descendants(int(child))
    return found


class Job:
    def __init__(self, build, folder):
        self.folder = pathlib.Path(folder)
        self.ddprun = str(pathlib.Path(build).resolve() / "bin" / "ddprun")
        self.env = dict(os.environ, DDPRUN_TOKEN=os.urandom(32).hex(), OMP_NUM_THREADS="1", KILLS_FOLDER=folder)
        self.program = self.folder / "worker.py"
        self.program.write_text(WORKER)
        self.service = Service(self.ddprun + "-rendezvous", str(self.folder / "journal"), self.env)
        self.nodes = {}
        self.killed = []
        for _ in range(3):
            self.start_node()

    def start_node(self):
        number = str(len(self.nodes) + len(self.killed))
        command = [self.ddprun, "--nnodes", "3", "--rdzv-id", "kills", "--rdzv-endpoint", self.service.target, "--lease", "3"]
        command += ["--max-restarts", "100000", str(self.program)]
        with open(self.folder / f"node{number}.err", "w") as err:
            env = dict(self.env, KILLS_NODE=number, PYTHON_EXEC=sys.executable)
            self.nodes[number] = subprocess.Popen(command, env=env, stdout=err, stderr=err)

    def rank_0(self):
        """(restarts so far, node) of the last rank 0 that began."""
        count, node = (self.folder / "rank0").read_text().split()
        return int(count), node

    def kill_node_of_rank_0(self):
        node = self.nodes.pop(self.rank_0()[1])
        for pid in descendants(node.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        node.wait()
        self.killed.append(node)
        self.start_node()

    def cycles(self):
        """(time, pid of rank 0, restarts) of each process group."""
        path = self.folder / "cycles"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [(float(t), pid, int(n)) for t, pid, n in (line.split() for line in lines if line.endswith("\n"))]

    def await_cycle(self, holds):
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for number, node in self.nodes.items():
                assert node.poll() is None, f"node {number} ended: " + (self.folder / f"node{number}.err").read_text()
            for cycle in self.cycles()[-50:]:
                if holds(cycle):
                    return cycle
            time.sleep(0.01)
        words = [(self.folder / f"node{number}.err").read_text()[-2000:] for number in self.nodes]
        raise AssertionError(f"no process group within {PATIENCE_S} s: {words}")

    def end(self):
        (self.folder / "end").touch()
        codes = [node.wait(PATIENCE_S) for node in self.nodes.values()]
        self.service.end()
        return codes


def measure(build, kills, seed):
    chance = random.Random(seed)
    times = {"service": [], "rank 0's node": []}
    with tempfile.TemporaryDirectory() as folder:
        job = Job(build, folder)
        try:
            job.await_cycle(lambda cycle: True)
            for number in range(kills):
                time.sleep(chance.uniform(0, 0.4))
                began = time.monotonic()
                _, pid, restarts = job.cycles()[-1]
                if number % 2 == 0:
                    job.service.kill_and_start()
                    cycle = job.await_cycle(lambda cycle: cycle[0] > began and cycle[1] == pid)
                    # The one under way may have needed the store no more.
                    cycle = job.await_cycle(lambda later: later[0] > cycle[0])
                    assert cycle[1:] == (pid, restarts), "the job began anew though only the service was gone"
                    times["service"].append(cycle[0] - began)
                else:
                    job.kill_node_of_rank_0()
                    cycle = job.await_cycle(lambda cycle: cycle[2] > restarts)
                    times["rank 0's node"].append(cycle[0] - began)
            count = len(job.cycles())
            codes = job.end()
            assert codes == [0, 0, 0], [(pathlib.Path(folder) / f"node{n}.err").read_text() for n in job.nodes]
            left = [path for path in pathlib.Path("/proc").glob("[0-9]*/environ") if is_of(path, folder)]
            assert not left, left
            return {"kills": kills, "process groups": count, "seconds to the next process group": times}
        finally:
            for node in job.nodes.values():
                if node.poll() is None:
                    node.terminate()
                    node.wait()
            job.service.end()


def is_of(environ, folder):
    with contextlib.suppress(OSError):
        return f"KILLS_FOLDER={folder}\0".encode() in environ.read_bytes()
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--build", default=BUILD)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    figures = measure(arguments.build, arguments.kills, arguments.seed)
    print(f"{figures['kills']} kills, {figures['process groups']} process groups; the job ended when it was told to")
    for name, times in figures["seconds to the next process group"].items():
        print(
            f"{name} killed {len(times)} times: the next process group after {statistics.median(times):.2f} s (median), "
            f"{sorted(times)[int(0.95 * (len(times) - 1))]:.2f} s (p95), {max(times):.2f} s (worst)"
        )
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(figures, indent=2))


main()
