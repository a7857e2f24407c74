# SPDX-License-Identifier: Apache-2.0
"""Nodes that fail again and again are left out. Hosts are host names here: each node has a UTS namespace of its own."""

import json
import os
import re
import subprocess
import time

import pytest
from conftest import BIN, DDPRUN, clean_environment, finish_all, run, start
from hosts import three_hosts  # noqa: F401  (fixture)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a host name of one's own needs root")

# Host b's fails when it is told to, once a round; the others' go on until they are told that all is done.
WORKER = """
echo ready in round $DDPRUN_ROUND
while [ ! -e "$FOLDER/done" ]; do
    [ "$(hostname)" = b ] && [ -e "$FOLDER/fail" ] && exit 9
    sleep 0.02
done
"""


@pytest.fixture
def service():
    process = subprocess.Popen(
        [BIN / "ddprun-rendezvous", "--port", "0"],
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process.stdout.readline().split()[-1]
    process.terminate()
    process.communicate(timeout=60)


def node(host, service, folder, *flags):
    return start(
        ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host, DDPRUN]
        + ["--rdzv-endpoint", service, "--rdzv-id", "job", "--max-restarts", "9", *flags, "sh", "-c", WORKER],
        env=clean_environment(FOLDER=str(folder)),
    )


def read_until(stream, text):
    """The lines until one that has the text."""
    lines = []
    for line in stream:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError(f"never said {text!r}: {lines}")


def test_a_spare_takes_the_place_of_the_node_that_fails_again(service, tmp_path):
    flags = ["--nnodes", "2", "--node-failures-max", "2"]
    a = node("a", service, tmp_path, *flags)
    b = node("b", service, tmp_path, *flags)
    read_until(b.stdout, "ready in round 1")
    c = node("c", service, tmp_path, *flags)
    read_until(c.stderr, "standing by as a spare")
    (tmp_path / "fail").touch()
    code, _, err = finish_all([b])[0]
    assert code == 9, err
    assert re.search(r"^ddprun: node b is left out after 2 failures \(--node-failures-max 2\) of run 'job'", err, re.M), err
    read_until(c.stdout, "ready in round 3")
    left_out = json.loads(run([DDPRUN, "status", "--rdzv-endpoint", service, "--json"]).stdout)["runs"][0]["left_out"]
    assert left_out == [{"host": "b", "failures": 2, "remaining_ms": 0}]
    assert "node b is left out after 2 failures\n" in run([DDPRUN, "status", "--rdzv-endpoint", service]).stdout
    # Another agent on that host is no other node.
    code, _, err = finish_all([node("b", service, tmp_path, *flags)])[0]
    assert code == 1 and "run ddprun on another one" in err, err
    (tmp_path / "done").touch()
    results = finish_all([a, c])
    assert [code for code, _, _ in results] == [0, 0], results
    assert re.search(r"restart 2 of 9 as round 3: .*; node b is left out after 2 failures", results[0][2]), results


def test_an_elastic_run_goes_on_without_it_until_its_cool_down_is_over(service, tmp_path):
    flags = ["--nnodes", "1:2", "--last-call", "0.5", "--node-failures-max", "1", "--node-cooldown", "3"]
    a = node("a", service, tmp_path, *flags)
    b = node("b", service, tmp_path, *flags)
    read_until(b.stdout, "ready in round")
    (tmp_path / "fail").touch()
    code, _, err = finish_all([b])[0]
    assert code == 9 and "(--node-cooldown)" in err, err
    read_until(a.stdout, "ready in round 2")
    (tmp_path / "fail").unlink()
    deadline = time.monotonic() + 60
    while True:
        b = node("b", service, tmp_path, *flags)
        said = b.stderr.readline()
        if "standing by" in said:
            break
        assert "node b is left out" in said and time.monotonic() < deadline, said
        finish_all([b])
    (tmp_path / "done").touch()
    results = finish_all([a, b])
    assert [code for code, _, _ in results] == [0, 0], results


def test_without_enough_nodes_the_run_ends_and_says_why(service, tmp_path):
    (tmp_path / "fail").touch()
    flags = ["--nnodes", "2", "--node-failures-max", "2"]
    results = finish_all([node(host, service, tmp_path, *flags) for host in ("a", "b")])
    assert [code for code, _, _ in results] == [9, 9], results
    why = "not restarted: node b is left out after 2 failures (--node-failures-max 2), and 1 node is left of the 2"
    assert all(why in err for _, _, err in results), results


def test_hosts_of_one_name_are_told_apart_by_their_addresses(three_hosts):  # noqa: F811
    """As machines cloned from one image are. All hosts of the fixture have this machine's name."""
    worker = '[ $WORLD_SIZE = 1 ] || { sleep 0.2; [ $RANK != 1 ] || exit 6; sleep 60; }'
    flags = ["--nnodes", "1:2", "--master-addr", three_hosts[0].address, "--last-call", "3", "--max-restarts", "2"]
    nodes = [
        start(
            [*host.prefix, DDPRUN, *flags, "--node-rank", rank, "--node-failures-max", "1", "sh", "-c", worker],
            env=clean_environment(),
        )
        for rank, host in enumerate(three_hosts[:2])
    ]
    (code, _, err), (code_left_out, _, err_left_out) = finish_all(nodes)
    assert (code, code_left_out) == (0, 6), (err, err_left_out)
    left_out = rf"node \S+ at {three_hosts[1].address} is left out after 1 failure "
    assert re.search(left_out, err) and re.search(left_out, err_left_out), (err, err_left_out)
