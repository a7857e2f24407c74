# SPDX-License-Identifier: Apache-2.0
"""Nodes whose processes are stopped for a while (SIGSTOP), as when a machine is suspended: whoever was stopped is named."""

import contextlib
import os
import re
import signal
import socket
import sys
import time

import pytest
from conftest import DDPRUN, agent_of, start, wait_for
from preload_runs import children_of

# A worker that shows that its node runs: it counts in a file.
WORKER = """
import os, pathlib, sys, time
file = pathlib.Path(sys.argv[1]) / os.environ["RANK"]
count = 0
while True:
    count += 1
    file.write_text(str(count))
    time.sleep(0.05)
"""


def processes_below(pid):
    found = [pid]
    for one in found:
        found += children_of(one)
    return found


@contextlib.contextmanager
def stopped(processes):
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in reversed(processes):
            os.kill(pid, signal.SIGCONT)


def count_of(folder, rank):
    file = folder / str(rank)
    return int(file.read_text() or "0") if file.exists() else 0


def await_progress(folder):
    before = [count_of(folder, rank) for rank in (0, 1)]
    wait_for("both workers", lambda: all(count_of(folder, rank) > before[rank] + 1 for rank in (0, 1)))


def listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=10):
        return True


@contextlib.contextmanager
def two_nodes(folder, port, *flags):
    program = folder / "worker.py"
    program.write_text(WORKER)
    command = [DDPRUN, "--nnodes", "2", "--nproc-per-node", "1", "--rdzv-endpoint", f"127.0.0.1:{port}", *flags]
    nodes = []
    for rank in ("0", "1"):
        nodes.append(start([*command, "--node-rank", rank, "--", sys.executable, program, folder]))
        wait_for("the service", lambda: listens(port))  # of node 0: on one machine each of them could host it
    try:
        await_progress(folder)
        yield nodes
    finally:
        for node in nodes:
            if node.poll() is None:
                node.terminate()
        for node in nodes:
            node.communicate(timeout=60)


def end_of(node):
    out, err = node.communicate(timeout=60)
    return node.returncode, out + err


@pytest.mark.parametrize("which", [processes_below, lambda warden: [agent_of(warden)]], ids=["node", "agent"])
def test_a_service_that_was_stopped_for_less_than_a_lease_loses_nobody(tmp_path, port, which):
    """The heartbeats wait in its sockets meanwhile, and its timer may be the first to run again."""
    with two_nodes(tmp_path, port, "--lease", "2") as nodes:
        for _ in range(4):
            with stopped(which(nodes[0].pid)):
                time.sleep(1.8)
            await_progress(tmp_path)
        assert [node.poll() for node in nodes] == [None, None]


def test_a_host_of_the_service_that_was_stopped_is_named(tmp_path, port):
    """The other node gives the service up, which is silent for longer than the keepalive and a lease."""
    with two_nodes(tmp_path, port, "--lease", "1") as nodes:
        with stopped(processes_below(nodes[0].pid)):
            code, said = end_of(nodes[1])
            assert code == 1
            assert f"lost the rendezvous service at 127.0.0.1:{port}" in said
            assert "no answer" in said
        code, said = end_of(nodes[0])
        assert code == 1
        assert re.search(
            r"run failed: node \S+ \(node rank 0\) was lost: it did not run for at least \d+ s, and with it the rendezvous "
            r"service, to which node \S+ \(node rank 1\) has not come back",
            said,
        ), said


def test_another_node_that_was_stopped_is_named_by_both(tmp_path, port):
    with two_nodes(tmp_path, port, "--lease", "1") as nodes:
        with stopped(processes_below(nodes[1].pid)):
            code, said = end_of(nodes[0])
            assert code == 1
            assert re.search(r"run failed: node \S+ \(node rank 1\) was lost: it sent nothing for 1 s", said), said
        code, said = end_of(nodes[1])
        assert code == 1
        assert re.search(r"node \S+ sent nothing for 1 s \(--lease\) and was removed from run", said), said
