#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a run is without a service when the one that leads is gone: three services with their journal in a real etcd of three
members, two nodes with a worker each. From the end of the leader until both nodes are connected to the next one.

    failover.py [--kills 100] [--how kill|stop|machine|nodes] [--settle SECONDS]

kill: the leader's process dies, as by an out-of-memory killer; its connections break, and its nodes ask the others. stop: it is stopped
by SIGSTOP: nobody hears of it, its lease expires, and the nodes' pings are not answered. machine: the leader is on a host of its own
(a network namespace), whose link goes down; no connection breaks. nodes: that host still reaches etcd, but no node or service. --settle:
how long each leader leads before it goes; below 4 s it is not replaced before its lease expires. Checks that the workers keep their
processes and that no record is lost: the run ends in its first round with 0.
"""

import argparse
import contextlib
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
from etcd_cluster import VERSIONS, Etcd, Services, node  # noqa: E402
from hosts import three_joined_hosts  # noqa: E402
from packet_filter import DropPackets  # noqa: E402
from process_tree import is_alive  # noqa: E402
from test_etcd_partitions import Cluster  # noqa: E402

WORKER = ["sh", "-c", "echo $$ > pid.$RANK; while [ ! -e end ]; do sleep 0.1; done"]
AGAIN = "connected to the rendezvous service"


class Node:
    def __init__(self, process):
        self.process = process
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


class OneMachine:
    """Everything on this machine."""

    def __init__(self, folder, etcd, services, how):
        self.services, self.how = services, how
        self.nodes = [Node(node(services, rank, *WORKER)) for rank in (0, 1)]

    def leader(self):
        return self.services.leader()

    def lose(self, leader):
        self.services.processes[leader].send_signal(signal.SIGKILL if self.how == "kill" else signal.SIGSTOP)

    def bring_back(self, leader):
        if self.how == "stop":
            self.services.processes[leader].send_signal(signal.SIGCONT)
        else:
            self.services.processes[leader].wait()
            self.services.start(leader)

    def stands_by(self, number):
        said = self.services.said(number)
        return said and said[-1].startswith("stands by")


class ThreeHosts:
    """A service each on the second and the third host; etcd and the nodes on the first."""

    def __init__(self, folder, etcd, hosts, how):
        self.cluster, self.how, self.cut = Cluster(hosts, folder, etcd, numbers=(1, 2)), how, None
        self.nodes = [Node(process) for process in self.cluster.nodes]

    def leader(self):
        return next(number for number in (1, 2) if not self.stands_by(number))

    def lose(self, leader):
        if self.how == "machine":
            self.cluster.hosts[0].run("ip", "link", "set", f"port{leader}", "down")
        else:
            self.cut = DropPackets(self.cluster.hosts[leader], open_ports=self.cluster.etcd.clients)
            self.cut.__enter__()

    def bring_back(self, leader):
        if self.how == "machine":
            self.cluster.hosts[0].run("ip", "link", "set", f"port{leader}", "up")
        else:
            self.cut.__exit__()

    def stands_by(self, number):
        return self.cluster.says(number, "stands by")


@contextlib.contextmanager
def setting(folder, how):
    (folder / "etcd").mkdir()
    if how in ("kill", "stop"):
        with Etcd(folder / "etcd", VERSIONS["3.4"]) as etcd, Services(folder, etcd, "--insecure") as services:
            yield OneMachine(folder, etcd, services, how)
        return
    with three_joined_hosts() as hosts, Etcd(folder / "etcd", VERSIONS["3.4"], host=hosts[0]) as etcd:
        made = ThreeHosts(folder, etcd, hosts, how)
        try:
            yield made
        finally:
            made.cluster.close()


def measure(folder, options):
    times = []
    with setting(folder, options.how) as run:
        wait_until(lambda: all((folder / f"pid.{rank}").exists() for rank in (0, 1)))
        pids = [int((folder / f"pid.{rank}").read_text()) for rank in (0, 1)]
        for count in range(1, options.kills + 1):
            time.sleep(options.settle)
            leader = run.leader()
            begin = time.monotonic()
            run.lose(leader)
            for one in run.nodes:
                one.wait(count)
            times.append(time.monotonic() - begin)
            run.bring_back(leader)
            wait_until(lambda leader=leader: run.stands_by(leader))
            print(json.dumps({"kill": count, "seconds": round(times[-1], 3)}), flush=True)
        assert all(is_alive(pid) for pid in pids), "a worker was started again"
        (folder / "end").touch()
        for one in run.nodes:
            assert one.process.wait(timeout=60) == 0
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--how", choices=["kill", "stop", "machine", "nodes"], default="kill")
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
