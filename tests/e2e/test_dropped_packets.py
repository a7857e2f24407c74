# SPDX-License-Identifier: Apache-2.0
"""A firewall that drops packets: each side says that nothing answers, within its own timeout. And a service that is gone."""

import time

import pytest
from conftest import BIN, DDPRUN, finish_all, processes_of_this_session, run, start
from hosts import two_hosts  # noqa: F401  (a fixture)
from packet_filter import DropPackets

PORT = "29518"


def in_one_line(text):
    return " ".join(text.split())


def node(host, rank, *flags):
    where = ["--nnodes", "2", "--node-rank", str(rank), "--master-addr", "10.77.0.1", "--master-port", PORT]
    return [*host.prefix, DDPRUN, *where, *flags]


@pytest.mark.parametrize("timeout", [2, 12])
def test_a_node_says_that_nothing_answers(two_hosts, timeout):  # noqa: F811
    """Within the first attempt to connect, and after several."""
    with DropPackets(two_hosts[0]):
        began = time.monotonic()
        done = run(node(two_hosts[1], 1, "--join-timeout", str(timeout), "true"))
        took = time.monotonic() - began
    assert done.returncode == 1, done
    assert "no answer" in done.stderr and "firewall" in done.stderr, done.stderr
    assert "is not a ddprun" not in done.stderr, done.stderr
    assert timeout - 0.5 < took < timeout + 3, took


def test_ctl_says_that_nothing_answers(two_hosts):  # noqa: F811
    with DropPackets(two_hosts[0]):
        done = run([*two_hosts[1].prefix, DDPRUN, "status", "--rdzv-endpoint", f"10.77.0.1:{PORT}", "--timeout", "2"])
    assert done.returncode == 1 and "firewall drops the packets" in done.stderr, done
    assert "is not a ddprun" not in done.stderr, done.stderr


def test_doctor_says_that_nothing_answers(two_hosts):  # noqa: F811
    def doctor(rank):
        host = two_hosts[rank]
        where = ["--nnodes", "2", "--node-rank", str(rank), "--master-addr", "10.77.0.1", "--master-port", PORT]
        return start([*host.prefix, DDPRUN, "doctor", *where, "--timeout", "3"])

    with DropPackets(two_hosts[0]):
        results = finish_all([doctor(0), doctor(1)])
    code, out, err = results[1]
    said = in_one_line(out + err)
    assert code == 1 and "no answer" in said and "firewall" in said, results
    assert "is not a ddprun" not in said, said


def test_a_service_that_was_killed_is_not_called_something_else(port):
    """It has answered before: it is a ddprun, and takes this node's certificate."""
    service = start([BIN / "ddprun-rendezvous", "--port", port])
    try:
        assert service.stdout.readline()
        node_0 = start([DDPRUN, "--nnodes", "1", "--rdzv-id", "a", "--rdzv-endpoint", f"127.0.0.1:{port}", "sh", "-c", "echo up; exec sleep 100"])
        assert "up" in node_0.stdout.readline()
        service.kill()
        ((code, _, err),) = finish_all([node_0])
    finally:
        service.kill()
        service.communicate()
    assert code == 1 and "closed without a word" in err, err
    assert "is no ddprun" not in err and "certificate" not in err, err


def test_nothing_is_left_behind():
    assert not processes_of_this_session()
