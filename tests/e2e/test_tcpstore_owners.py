# SPDX-License-Identifier: Apache-2.0
"""Who is let in at the agent's TCPStore from other hosts: what a node of the run has as its user, whatever the address."""

import contextlib
import json
import re
import sys

import pytest
from conftest import BIN, DDPRUN, REPO, clean_environment, finish_all, run, start, wait_for
from hosts import three_hosts  # noqa: F401  (fixture)

sys.path.insert(0, str(REPO / "tests" / "testing"))
from faults import Faults  # noqa: E402

NOBODY = 65534
DOCKERS = "172.17.0.2"
# From an address of its host, if one is named, and as a user: whether the store answers.
CLIENT = """
import os, socket, sys
address, port, source, user = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
os.setuid(user)
with socket.create_connection((address, port), 20, (source, 0) if source else None) as connection:
    connection.sendall(bytes.fromhex("00cef7853c0d01020304"))
    try:
        print("in" if connection.recv(4) else "out")
    except ConnectionResetError:
        print("out")
"""


class Run:
    """Two nodes, on the first two hosts, whose workers wait until close(), and the store of the first."""

    def __init__(self, hosts, folder, environments=({}, {}), flags=()):
        self._end = folder / "end"
        at = folder / "at"
        waits = f'echo "at $MASTER_ADDR $MASTER_PORT" >> {at}; while [ ! -e {self._end} ]; do sleep 0.05; done'
        flags = flags or ["--master-addr", hosts[0].address]
        self._nodes = [
            start(
                [*host.prefix, DDPRUN, "--nnodes", "2", "--node-rank", rank, *flags, "--no-python", "sh", "-c", waits],
                env=clean_environment(**environments[rank]),
            )
            for rank, host in enumerate(hosts[:2])
        ]
        wait_for("both workers", lambda: at.exists() and at.read_text().count("at ") == 2, 60)
        _, self.address, self.port = at.read_text().split()[:3]

    def client(self, host, source="", user=0):
        done = run([*host.prefix, sys.executable, "-c", CLIENT, self.address, self.port, source, user])
        return done.stdout.strip() or done.stderr

    def close(self):
        """What the nodes have printed."""
        self._end.touch()
        results = finish_all(self._nodes)
        assert [code for code, _, _ in results] == [0, 0], results
        return [err for _, _, err in results]


def test_a_nodes_own_processes_get_in_from_addresses_that_it_did_not_name(three_hosts, tmp_path):  # noqa: F811
    first, second, _ = three_hosts
    first.run("ip", "address", "add", "169.254.9.1/16", "dev", "eth0")
    second.run("ip", "address", "add", "169.254.9.2/16", "dev", "eth0")
    nodes = Run(three_hosts, tmp_path)
    second.run("ip", "address", "add", "10.78.0.99/24", "dev", "eth0")
    got = [nodes.client(second, source) for source in ("", "169.254.9.2", "10.78.0.99")]
    of_nobody = [nodes.client(second, source, NOBODY) for source in ("169.254.9.2", "10.78.0.99")]
    said = nodes.close()
    assert got == ["in"] * 3, said
    assert of_nobody == ["out"] * 2, said


def test_a_run_at_link_local_addresses_of_ipv6(three_hosts, tmp_path):  # noqa: F811
    for number, host in enumerate(three_hosts, 1):
        host.run("ip", "address", "add", f"fe80::77:{number}/64", "dev", "eth0", "nodad")
    nodes = Run(three_hosts, tmp_path, flags=["--master-addr", "fe80::77:1%eth0"])
    second, third = three_hosts[1:]
    got = [nodes.client(host, user=user) for host, user in ((second, 0), (second, NOBODY), (third, 0))]
    said = nodes.close()
    assert got == ["in", "out", "out"], said


@pytest.mark.parametrize("service", ["of node 0", "alone"])
def test_another_user_of_a_nodes_host_is_refused_and_both_nodes_say_so(three_hosts, tmp_path, service):  # noqa: F811
    first, second, _ = three_hosts
    with contextlib.ExitStack() as stack:
        flags = []
        if service == "alone":
            flags = ["--rdzv-endpoint", f"{first.address}:29500", "--rdzv-id", "r"]
            alone = start([*first.prefix, BIN / "ddprun-rendezvous", "--host", first.address, "--port", "29500"])
            stack.callback(alone.communicate, timeout=30)
            stack.callback(alone.terminate)
        nodes = Run(three_hosts, tmp_path, flags=flags)
        got = [nodes.client(second, user=user) for user in (NOBODY, 0)]
        got += [nodes.client(first, user=user) for user in (NOBODY, 0)]
        said = nodes.close()
    assert got == ["out", "in"] * 2, said
    assert re.search(
        rf"refused a connection from {second.address} to the workers' store: it is of user {NOBODY} of host ", said[0]
    )
    assert re.search(
        rf"the workers' store at {nodes.address}:{nodes.port} refused a connection from this host's address "
        rf"{second.address}, port \d+: it is of user {NOBODY}, and this node's user is 0; start",
        said[1],
    )


def test_a_stranger_with_an_address_that_a_node_names_too_is_refused(three_hosts, tmp_path):  # noqa: F811
    """Docker gives 172.17.0.2 to the first container of each host."""
    first, second, third = three_hosts
    second.run("ip", "address", "add", f"{DOCKERS}/32", "dev", "lo")
    third.run("ip", "address", "add", f"{DOCKERS}/32", "dev", "eth0")
    link = json.loads(run([*third.prefix, "ip", "-j", "link", "show", "eth0"]).stdout)[0]["address"]
    first.run("ip", "route", "add", f"{DOCKERS}/32", "dev", "eth0")
    first.run("ip", "neigh", "replace", DOCKERS, "lladdr", link, "dev", "eth0", "nud", "permanent")
    nodes = Run(three_hosts, tmp_path)
    got = [nodes.client(third, DOCKERS), nodes.client(second)]
    said = nodes.close()
    assert got == ["out", "in"], said
    assert f"refused a connection from {DOCKERS} to the workers' store: no process on another node of this run has it" in said[0]
    assert f"from this host's address {DOCKERS}, port " in said[1]
    assert "no process in ddprun's network namespace has it" in said[1]


def test_a_node_that_cannot_see_its_connections_says_so(three_hosts, tmp_path):  # noqa: F811
    second = three_hosts[1]
    faults = Faults(tmp_path)
    nodes = Run(three_hosts, tmp_path, environments=({}, faults.env()))
    faults.set("socket EPERM program=ddprun", "open EACCES path=/proc/net/tcp program=ddprun")
    got = nodes.client(second, user=NOBODY)
    faults.clear()
    said = nodes.close()
    assert got == "in", said
    assert re.search(
        rf"let in a connection from {second.address} to the workers' store although host \S+ cannot see which user it is of",
        said[0],
    )
    assert "cannot see which user a connection from this host to the workers' store is of: neither sock_diag(7)" in said[1]
