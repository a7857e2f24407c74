# SPDX-License-Identifier: Apache-2.0
"""Several hosts on one machine: network namespaces with an address each, joined by a veth pair.

A namespace is held by a process that waits on a pipe and not by a name under /run/netns, so that nothing is left
behind however the test ends, and so that it works where /run cannot be mounted upon. A user who is not root gets the
namespaces in a user namespace of their own where the kernel allows it.
"""

import contextlib
import json
import os
import subprocess

import pytest
from conftest import wait_for

LINK_S = 20


class Host:
    """One namespace, or several of different `kinds`; `prefix` before a command runs it there."""

    def __init__(self, address, kinds=("net",)):
        self.address = address
        self._holder = subprocess.Popen(
            ["unshare", *[f"--{kind}" for kind in kinds], "sh", "-c", "echo ready; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self._holder.stdout.readline().strip() != "ready":
            raise OSError(f"unshare of {kinds} failed")
        self.pid = self._holder.pid
        files = {"net": "net", "uts": "uts", "mount": "mnt"}
        self.prefix = ["nsenter", *[f"--{kind}=/proc/{self.pid}/ns/{files[kind]}" for kind in kinds], "--"]

    def run(self, *command):
        subprocess.run([*self.prefix, *command], check=True, timeout=30)

    def put_file(self, path, text, folder):
        """A file of this host alone in place of the machine's (kind "mount"); `folder` keeps the text."""
        own = folder / f"{self.address}-{os.path.basename(path)}"
        own.write_text(text)
        self.run("mount", "--bind", str(own), path)

    def await_link(self):
        """Until eth0 runs, which is a moment after both ends are up: NCCL does not see it before."""

        def runs():
            told = subprocess.run([*self.prefix, "ip", "-j", "link", "show", "eth0"], capture_output=True, text=True, timeout=30)
            return [link for link in json.loads(told.stdout or "[]") if link.get("operstate") == "UP"]

        wait_for("a link that is up", runs, LINK_S)

    def close(self):
        self._holder.stdin.close()
        self._holder.wait(timeout=30)


@contextlib.contextmanager
def joined_hosts(kinds=("net",)):
    """Two hosts that reach each other at 10.77.0.1 and 10.77.0.2, and nothing else."""
    hosts = [Host("10.77.0.1", kinds), Host("10.77.0.2", kinds)]
    try:
        first, second = hosts
        first.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", str(second.pid))
        for host in hosts:
            host.run("ip", "address", "add", f"{host.address}/24", "dev", "eth0")
            host.run("ip", "link", "set", "eth0", "up")
            host.run("ip", "link", "set", "lo", "up")
        for host in hosts:
            host.await_link()
        yield hosts
    finally:
        for host in hosts:
            host.close()


@pytest.fixture
def two_hosts():
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    with joined_hosts() as hosts:
        yield hosts


@pytest.fixture
def two_named_hosts():
    """The same, with files and a host name of their own: node0 and node1."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    with joined_hosts(("net", "mount", "uts")) as hosts:
        for number, host in enumerate(hosts):
            host.run("sh", "-c", f"echo node{number} > /proc/sys/kernel/hostname")
        yield hosts


@contextlib.contextmanager
def three_joined_hosts():
    """Three hosts on one network, 10.78.0.1 to 10.78.0.3; the first one is its switch too."""
    hosts = [Host(f"10.78.0.{number}") for number in (1, 2, 3)]
    try:
        first = hosts[0]
        first.run("ip", "link", "add", "eth0", "type", "bridge")
        for number, host in enumerate(hosts):
            if host is not first:
                peer = f"port{number}"
                first.run("ip", "link", "add", peer, "type", "veth", "peer", "name", "eth0", "netns", str(host.pid))
                first.run("ip", "link", "set", peer, "master", "eth0", "up")
            host.run("ip", "address", "add", f"{host.address}/24", "dev", "eth0")
            host.run("ip", "link", "set", "eth0", "up")
            host.run("ip", "link", "set", "lo", "up")
        for host in hosts:
            host.await_link()
        yield hosts
    finally:
        for host in hosts:
            host.close()


@pytest.fixture
def three_hosts():
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    with three_joined_hosts() as hosts:
        yield hosts
