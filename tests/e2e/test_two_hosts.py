# SPDX-License-Identifier: Apache-2.0
"""Two hosts with addresses of their own, as in README's third line."""

import json
import os
import re
import shlex
import signal

import pytest
from conftest import BUILD, DDPRUN, agent_of, finish_all, run, start
from hosts import two_hosts  # noqa: F401  (a fixture)
from packet_filter import DropPackets

SERVICE_PORT = "29500"  # the default of --master-port


def run_on_both(hosts, arguments, timeout=300, nproc=1):
    processes = [
        start(
            [
                *host.prefix,
                *[DDPRUN, "--nnodes", "2", "--node-rank", rank, "--master-addr", hosts[0].address],
                *["--nproc-per-node", nproc, *arguments],
            ]
        )
        for rank, host in enumerate(hosts)
    ]
    return finish_all(processes, timeout)


def test_train_ends_with_equal_parameters_on_both(two_hosts, tmp_path):  # noqa: F811
    results = run_on_both(
        two_hosts,
        ["train", "--model", "netresdeep", "--dataset", "fashion-mnist", "--max-steps", "12", "--batch-size", "32"]
        + ["--log-every", "4", "--no-eval", "--output-dir", str(tmp_path)],
    )
    assert [code for code, _, _ in results] == [0, 0], results
    sums = [re.findall(r"parameters crc32 (\S+)", out) for _, out, _ in results]
    assert len(sums[0]) == 1 and sums[0] == sums[1], results
    for rank, (_, out, _) in enumerate(results):
        assert re.search(rf":{rank}\] epoch 1/\d+ batch 4/\d+ loss \d", out), out
    assert (tmp_path / "cifar_net.pth").is_file()


def test_nccl_unique_id_reaches_the_other_host_byte_for_byte(two_hosts):  # noqa: F811
    """The id is a real one: ncclGetUniqueId needs no GPU. It takes the nodes' one connection, under TLS: the hosts drop all else."""
    with DropPackets(two_hosts[0], [SERVICE_PORT]), DropPackets(two_hosts[1], [SERVICE_PORT]):
        results = run_on_both(two_hosts, [str(BUILD / "tests" / "nccl_id_probe")], nproc=2)
    assert [code for code, _, _ in results] == [0, 0], results
    lines = re.findall(r"rank (\d) nccl-id ([0-9a-f]+) (\S+)", "".join(out for _, out, _ in results))
    assert sorted(rank for rank, _, _ in lines) == ["0", "1", "2", "3"], results
    assert len({(unique_id, key) for _, unique_id, key in lines}) == 1, lines
    unique_id = lines[0][1]
    assert len(unique_id) == 2 * 128
    assert set(unique_id) != {"0"}


def test_nccl_ids_of_several_roots_reach_both_hosts_anew_after_a_restart(two_hosts):  # noqa: F811
    """As for more than 128 ranks, of which ProcessGroupNCCL makes every 128th a root."""
    probe = str(BUILD / "tests" / "nccl_id_probe")
    # The first round fails once all have what they want.
    once = f'{shlex.quote(probe)} 3 | sed "s/^/round $DDPRUN_ROUND /" && test "$TORCHELASTIC_RESTART_COUNT" = 1'
    results = run_on_both(two_hosts, ["--max-restarts", "1", "sh", "-c", once], nproc=2)
    assert [code for code, _, _ in results] == [0, 0], results
    lines = re.findall(
        r"round (\d) rank (\d) nccl-id ([0-9a-f]{256}) \S+UniqueNCCLID:(\d)", "".join(out for _, out, _ in results)
    )
    ids = {}
    for round_, rank, unique_id, root in lines:
        ids.setdefault((round_, root), {})[rank] = unique_id
    assert {(round_, root) for round_, root in ids if round_ == "2"} == {("2", "0"), ("2", "1"), ("2", "2")}, lines
    assert all(len(set(of_ranks.values())) == 1 for of_ranks in ids.values()), lines
    assert all(sorted(ids["2", root]) == ["0", "1", "2", "3"] for root in "012"), lines
    first = {unique_id for (round_, _), of_ranks in ids.items() if round_ == "1" for unique_id in of_ranks.values()}
    assert first, lines
    assert not first & {unique_id for root in "012" for unique_id in ids["2", root].values()}, lines


def test_a_failure_on_one_host_ends_the_other_with_the_same_verdict(two_hosts):  # noqa: F811
    results = run_on_both(
        two_hosts, ["sh", "-c", 'test "$RANK" = 1 && kill -SEGV $$; exec cat /dev/zero >/dev/null'], timeout=60
    )
    assert [code for code, _, _ in results] == [139, 139], results
    verdicts = {re.search(r"run failed: (.*)", err).group(1) for _, _, err in results}
    assert len(verdicts) == 1
    assert "rank 1" in verdicts.pop()


def test_a_host_that_vanishes_is_noticed(two_hosts):  # noqa: F811
    """Its link goes down: no packet says goodbye, so keepalive must tell."""
    processes = [
        start(
            [
                *host.prefix,
                *[DDPRUN, "--nnodes", "2", "--node-rank", rank, "--master-addr", two_hosts[0].address],
                *["sh", "-c", "echo running; exec sleep 1000"],
            ]
        )
        for rank, host in enumerate(two_hosts)
    ]
    assert "running" in processes[1].stdout.readline()
    two_hosts[1].run("ip", "link", "set", "eth0", "down")
    results = finish_all(processes, 60)
    assert [code for code, _, _ in results] == [1, 1], results
    assert "node rank 1" in results[0][2]
    assert "10.77.0.1" in results[1][2]


def test_a_killed_agent_is_told_to_the_other_host(two_hosts):  # noqa: F811
    """The lease is longer than the test's patience: only the warden's word can end the run."""
    processes = [
        start(
            [
                *host.prefix,
                *[DDPRUN, "--nnodes", "2", "--node-rank", rank, "--master-addr", two_hosts[0].address],
                *["--lease", "3600", "sh", "-c", "echo running; exec sleep 1000"],
            ]
        )
        for rank, host in enumerate(two_hosts)
    ]
    for process in processes:
        assert "running" in process.stdout.readline()
    status = run([*two_hosts[1].prefix, DDPRUN, "status", "--master-addr", two_hosts[0].address, "--json"])
    nodes = json.loads(status.stdout)["runs"][0]["nodes"]
    assert [node["address"] for node in nodes] == [host.address for host in two_hosts], status
    agent = agent_of(processes[1].pid)
    os.kill(agent, signal.SIGKILL)
    results = finish_all(processes, 60)
    assert [code for code, _, _ in results] == [1, 137], results
    assert re.search(r"\(node rank 1\) was lost: its agent was killed by signal 9 \(SIGKILL\)", results[0][2]), results


@pytest.mark.parametrize("late", [0, 1])
def test_either_host_may_come_first(two_hosts, late):  # noqa: F811
    common = [DDPRUN, "--nnodes", "2", "--master-addr", two_hosts[0].address]
    early = 1 - late
    first = start([*two_hosts[early].prefix, *common, "--node-rank", early, "true"])
    assert "waiting for" in (said := first.stderr.readline()) or "not reached yet" in said
    second = start([*two_hosts[late].prefix, *common, "--node-rank", late, "true"])
    results = finish_all([first, second], 60)
    assert [code for code, _, _ in results] == [0, 0], results
