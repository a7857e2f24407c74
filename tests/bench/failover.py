#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a run is without a service when the one that leads is gone: three services with their journal in a real etcd of three
members, two nodes with a worker each. From the end of the leader until both nodes are connected to the next one.

    failover.py [--kills 100] [--how kill|stop] [--settle SECONDS]

kill: the leader's process dies, as by an out-of-memory killer; its connections break, and its nodes ask the others. stop: it is stopped
by SIGSTOP, as a machine whose network is cut: nobody hears of it, its lease expires, and the nodes' pings are not answered. --settle: how
long each leader leads before it goes; below 4 s it is not replaced before its lease expires. Checks that the workers keep their
processes and that no record is lost: the run ends in its first round with 0.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from etcd_cluster import VERSIONS, Etcd, Services, is_alive, node  # noqa: E402

WORKER = ["sh", "-c", "echo $$ > pid.$RANK; while [ ! -e end ]; do sleep 0.1; done"]
AGAIN = "connected to the rendezvous service"


class Node:
    def __init__(self, services, rank):
        self.process = node(services, rank, *WORKER)
        self.again = 0
        self.changed = threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stderr:
            if AGAIN in line:
                with self.changed:
                    self.again += 1
                    self.changed.notify_all()

    def wait(self, count, timeout=60):
        with self.changed:
            assert self.changed.wait_for(lambda: self.again >= count, timeout), f"a node was not back within {timeout} s"


def wait_until(question, timeout=60):
    deadline = time.monotonic() + timeout
    while not question():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def measure(folder, options):
    (folder / "etcd").mkdir()
    times = []
    with Etcd(folder / "etcd", VERSIONS["3.4"]) as etcd, Services(folder, etcd, "--insecure") as services:
        nodes = [Node(services, rank) for rank in (0, 1)]
        wait_until(lambda: all((folder / f"pid.{rank}").exists() for rank in (0, 1)))
        pids = [int((folder / f"pid.{rank}").read_text()) for rank in (0, 1)]
        for count in range(1, options.kills + 1):
            time.sleep(options.settle)
            leader = services.leader()
            begin = time.monotonic()
            services.processes[leader].send_signal(signal.SIGKILL if options.how == "kill" else signal.SIGSTOP)
            for one in nodes:
                one.wait(count)
            times.append(time.monotonic() - begin)
            if options.how == "stop":
                services.processes[leader].send_signal(signal.SIGCONT)
            else:
                services.processes[leader].wait()
                services.start(leader)
            wait_until(lambda leader=leader: services.said(leader) and services.said(leader)[-1].startswith("stands by"))
            print(json.dumps({"kill": count, "seconds": round(times[-1], 3)}), flush=True)
        assert all(is_alive(pid) for pid in pids), "a worker was started again"
        (folder / "end").touch()
        for one in nodes:
            assert one.process.wait(timeout=60) == 0
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--how", choices=["kill", "stop"], default="kill")
    parser.add_argument("--settle", type=float, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        os.chdir(folder)
        times = sorted(measure(pathlib.Path(folder), options))
        os.chdir("/")
    p99 = times[min(len(times) - 1, int(0.99 * len(times)))]
    print(f"{len(times)} leaders gone ({options.how}): p50 {statistics.median(times):.2f} s, p99 {p99:.2f} s, longest {times[-1]:.2f} s")


if __name__ == "__main__":
    main()
