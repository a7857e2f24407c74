# SPDX-License-Identifier: Apache-2.0
"""Names of hosts: those that only the system's resolver knows, and node 0's own, which is loopback there on Debian."""

import pytest
from conftest import BUILD, DDPRUN, clean_environment, finish_all, processes_of_this_session, run, start
from hosts import two_named_hosts  # noqa: F401  (a fixture)

LOOPBACK = "127.0.0.1 localhost\n"
PORT = "29517"


def run_on_both(hosts, where, program, env=None):
    """`where`: the flags that say where to meet, of each node."""
    calls = [
        [*host.prefix, DDPRUN, "--nnodes", "2", "--join-timeout", "20", *where[rank], *program]
        for rank, host in enumerate(hosts)
    ]
    return finish_all([start(call, env=env) for call in calls])


def by_rank(*flags):
    return [["--node-rank", str(rank), *flags] for rank in range(2)]


def debian_hosts(hosts, folder):
    """Each knows its own name as 127.0.1.1 and the other's by its address."""
    hosts[0].put_file("/etc/hosts", LOOPBACK + "127.0.1.1 node0\n10.77.0.2 node1\n", folder)
    hosts[1].put_file("/etc/hosts", LOOPBACK + "127.0.1.1 node1\n10.77.0.1 node0\n", folder)


@pytest.mark.parametrize(
    "where",
    [
        by_rank("--master-addr", "node0", "--master-port", PORT),
        [["--rdzv-id", "a", "--rdzv-endpoint", f"node0:{PORT}"]] * 2,
    ],
    ids=["master-addr", "rdzv-endpoint"],
)
def test_node_0_whose_own_name_is_loopback_there(two_named_hosts, tmp_path, where):  # noqa: F811
    debian_hosts(two_named_hosts, tmp_path)
    results = run_on_both(two_named_hosts, where, ["sh", "-c", "echo master $MASTER_ADDR"])
    assert [code for code, _, _ in results] == [0, 0], results
    # What rank 0 listens at, for all ranks: an address that the other node reaches.
    assert all("master 10.77.0." in out for _, out, _ in results), results


def test_doctor_says_that_all_interfaces_are_listened_at(two_named_hosts, tmp_path):  # noqa: F811
    debian_hosts(two_named_hosts, tmp_path)
    calls = [
        [*host.prefix, DDPRUN, "doctor", "--nnodes", "2", "--node-rank", str(rank), "--master-addr", "node0"]
        for rank, host in enumerate(two_named_hosts)
    ]
    results = finish_all([start(call) for call in calls])
    for _, out, _ in results:
        assert "--master-addr node0 is 127.0.1.1 here" in " ".join(out.split()), out
        assert "2 of 2 ways work" in " ".join(out.split()), out


def test_a_name_that_only_the_systems_resolver_knows(two_named_hosts, tmp_path):  # noqa: F811
    """As those of LDAP, mDNS and systemd are: neither DNS nor /etc/hosts has it."""
    for host in two_named_hosts:
        host.put_file("/etc/hosts", LOOPBACK, tmp_path)
        host.put_file("/etc/nsswitch.conf", "hosts: files ddpruntest\n", tmp_path)
    env = clean_environment(LD_LIBRARY_PATH=str(BUILD / "tests"), DDPRUN_TEST_NAME="first-node=10.77.0.1")
    resolved = run([*two_named_hosts[1].prefix, "getent", "ahosts", "first-node"], env=env)
    assert "10.77.0.1" in resolved.stdout, resolved
    where = by_rank("--master-addr", "first-node", "--master-port", PORT)
    results = run_on_both(two_named_hosts, where, ["sh", "-c", "echo resolver ${GRPC_DNS_RESOLVER-inherited}"], env)
    assert [code for code, _, _ in results] == [0, 0], results
    # What ddprun asks of gRPC is not asked of a worker's.
    assert all("resolver inherited" in out for _, out, _ in results), results


def test_nothing_is_left_behind():
    assert not processes_of_this_session()
