# SPDX-License-Identifier: Apache-2.0
"""Hosts with two networks each, of which only one leads to the other host, and whose names mean the wrong one: what
Gloo and NCCL would choose by themselves does not work, and what ddprun tells them does."""

import os
import sys

import pytest
from conftest import DDPRUN, finish_all, start
from hosts import Host

ALL_REDUCE = """\
import datetime, os, torch, torch.distributed as dist
print("told", *[f"{name}={os.environ.get(name)}" for name in
      ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY")], flush=True)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=15))
number = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(number)
print("sum", number.item(), flush=True)
dist.destroy_process_group()
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "all_reduce.py"
    path.write_text(ALL_REDUCE)
    return path


@pytest.fixture
def multihomed(tmp_path):
    """Two hosts that reach each other over eth1 only; eth0, where their names lead, ends in themselves."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    kinds = ("net", "uts", "mount")
    hosts = [Host("10.77.1.1", kinds), Host("10.77.1.2", kinds)]
    try:
        first, second = hosts
        first.run("ip", "link", "add", "eth1", "type", "veth", "peer", "name", "eth1", "netns", str(second.pid))
        for number, host in enumerate(hosts):
            host.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0end")
            host.run("ip", "address", "add", f"10.88.{number}.1/24", "dev", "eth0")
            host.run("ip", "address", "add", f"{host.address}/24", "dev", "eth1")
            host.run("ip", "address", "add", f"fd00:77::{number + 1}/64", "dev", "eth1", "nodad")
            for name in ("lo", "eth0", "eth0end", "eth1"):
                host.run("ip", "link", "set", name, "up")
            names = tmp_path / f"hosts{number}"
            names.write_text(f"127.0.0.1 localhost\n10.88.{number}.1 host{number}\n")
            host.run("mount", "--bind", str(names), "/etc/hosts")
            host.run("hostname", f"host{number}")
        yield hosts
    finally:
        for host in hosts:
            host.close()


def run_on_both(hosts, master, program, timeout=120):
    return finish_all(
        [
            start(
                [*host.prefix, DDPRUN, "--nnodes", "2", "--node-rank", rank, "--master-addr", master]
                + [str(word) for word in program],
                cwd="/",
            )
            for rank, host in enumerate(hosts)
        ],
        timeout,
    )


def test_gloo_works_with_nothing_set(multihomed, script):
    results = run_on_both(multihomed, "10.77.1.1", [script])
    assert [code for code, _, _ in results] == [0, 0], results
    for _, out, _ in results:
        assert "told GLOO_SOCKET_IFNAME=eth1 NCCL_SOCKET_IFNAME==eth1 NCCL_SOCKET_FAMILY=None" in out
        assert "sum 3.0" in out


def test_gloo_works_over_ipv6(multihomed, script):
    for host in multihomed:
        host.run("ip", "address", "del", f"{host.address}/24", "dev", "eth1")
    results = run_on_both(multihomed, "fd00:77::1", [script])
    assert [code for code, _, _ in results] == [0, 0], results
    for _, out, _ in results:
        assert "told GLOO_SOCKET_IFNAME=eth1 NCCL_SOCKET_IFNAME==eth1 NCCL_SOCKET_FAMILY=AF_INET6" in out
        assert "sum 3.0" in out


def test_without_it_gloo_takes_the_address_of_the_hosts_name(multihomed, script):
    """What the other tests would be worth if this one passed by itself: nothing."""
    results = run_on_both(multihomed, "10.77.1.1", ["env", "-u", "GLOO_SOCKET_IFNAME", sys.executable, script])
    assert [code for code, _, _ in results] == [1, 1], results
    said = "".join(out + err for _, out, err in results)
    assert "sum 3.0" not in said
    assert "Network is unreachable" in said, said


def test_an_address_of_a_host_that_routes_by_itself_means_no_interface(multihomed):
    """It is on `lo`, where Gloo would find 127.0.0.1 first."""
    for number, host in enumerate(multihomed):
        host.run("ip", "address", "add", f"10.99.0.{number + 1}/32", "dev", "lo")
        other = 2 - number
        host.run(*f"ip route add 10.99.0.{other}/32 via 10.77.1.{other} src 10.99.0.{number + 1}".split())
    results = run_on_both(multihomed, "10.99.0.1", ["sh", "-c", "echo told .$GLOO_SOCKET_IFNAME$NCCL_SOCKET_IFNAME."])
    assert [code for code, _, _ in results] == [0, 0], results
    assert all("told .." in out for _, out, _ in results), results
