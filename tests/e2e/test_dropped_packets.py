# SPDX-License-Identifier: Apache-2.0
"""A firewall that drops packets: each side says that nothing answers, within its own timeout. And a service that is gone."""

import os
import time

import pytest
from conftest import BIN, DDPRUN, TRAIN, clean_environment, finish_all, processes_of_this_session, run, start
from hosts import two_hosts  # noqa: F401  (a fixture)
from packet_filter import DropPackets

PORT = "29518"
needs_train = pytest.mark.skipif(not os.path.exists(TRAIN), reason="built without LibTorch")


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


@needs_train
def test_workers_that_do_not_reach_each_other_say_so_in_time(two_hosts, tmp_path):  # noqa: F811
    """Only the service's port is open: the nodes meet, and Gloo's connections are dropped."""
    train = ["train", "--dataset", "synthetic", "--max-steps", "1", "--timeout", "8", "--output-dir", str(tmp_path)]
    with DropPackets(two_hosts[0], [PORT]), DropPackets(two_hosts[1], [PORT]):
        began = time.monotonic()
        results = finish_all([start(node(host, rank, *train)) for rank, host in enumerate(two_hosts)])
        took = time.monotonic() - began
    assert [code for code, _, _ in results] == [1, 1], results
    for _, _, err in results:
        said = in_one_line(err)
        assert "no answer, as where a firewall drops packets" in said, err
        assert "let TCP through between them" in said, err
    assert took < 8 + 12, took


@needs_train
def test_a_master_without_a_launcher_that_drops_packets(two_hosts):  # noqa: F811
    env = clean_environment(RANK="1", WORLD_SIZE="2", MASTER_ADDR="10.77.0.1", MASTER_PORT=PORT)
    with DropPackets(two_hosts[0]):
        began = time.monotonic()
        done = run([*two_hosts[1].prefix, TRAIN, "--dataset", "synthetic", "--timeout", "3"], env=env)
        took = time.monotonic() - began
    assert done.returncode == 1 and "10.77.0.1" in done.stderr, done
    assert took < 3 + 5, took


@needs_train
@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_master_that_has_no_address(rank):
    """Under srun or by hand: no launcher has resolved the name before."""
    env = clean_environment(RANK=rank, WORLD_SIZE="2", MASTER_ADDR="no-such-host.invalid", MASTER_PORT=PORT)
    began = time.monotonic()
    done = run([TRAIN, "--dataset", "synthetic", "--timeout", "4"], env=env)
    took = time.monotonic() - began
    assert done.returncode == 1, done
    assert "cannot resolve 'no-such-host.invalid'" in done.stderr and "MASTER_ADDR" in done.stderr, done.stderr
    assert "port taken" not in done.stderr, done.stderr
    assert took < 4 + 3, took


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
    assert code == 1 and "closed without a status" in err, err
    assert "is no ddprun" not in err and "certificate" not in err, err


def test_nothing_is_left_behind():
    assert not processes_of_this_session()
