# SPDX-License-Identifier: Apache-2.0
"""Real ssh between the hosts of hosts.py: a server in each with keys and settings of the test's own."""

import os
import pathlib
import shutil
import subprocess
import time

import pytest
from hosts import three_hosts  # noqa: F401  (a fixture)

SSHD = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
# deploy/setup.sh unpacks it, as its package would start a server here: it lacks a library and the user that the package makes.
UNPACKED = pathlib.Path(SSHD).resolve().parents[2] if SSHD and not SSHD.startswith(("/usr/", "/sbin/")) else None
WITH_USER = (
    'grep -q ^sshd: /etc/passwd || { (cat /etc/passwd && echo "sshd:x:65534:65534::/run/sshd:/usr/sbin/nologin") > "$0" &&'
    ' mount --bind "$0" /etc/passwd; } && exec "$@"'
)

SERVER = """
Port 22
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
"""

CLIENT = """
Host *
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
"""


class SshHosts:
    """`hosts[0]` is where the head runs; the others have servers. `path` holds an `ssh` with the test's settings."""

    def __init__(self, hosts, folder):
        self.hosts = hosts
        self.folder = folder
        for name in ("host_key", "user_key", "stranger_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
        os.makedirs("/run/sshd", exist_ok=True)  # where the server locks itself up
        key = " ".join((folder / "host_key.pub").read_text().split()[:2])
        self.known_hosts = folder / "known_hosts"
        self.known_hosts.write_text("".join(f"{host.address} {key}\n" for host in hosts))
        self.config = folder / "ssh_config"
        self.config.write_text(CLIENT.format(folder=folder))
        self.path = folder / "bin"
        self.path.mkdir()
        script = self.path / "ssh"
        script.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.config} "$@"\n')
        script.chmod(0o755)
        self.servers = [self._serve(host) for host in hosts[1:]]

    def _serve(self, host):
        config = self.folder / f"sshd_{host.address}"
        config.write_text(SERVER.format(address=host.address, folder=self.folder))
        user = ["unshare", "--mount", "sh", "-c", WITH_USER, str(self.folder / f"passwd_{host.address}")]
        libraries = {"LD_LIBRARY_PATH": str(next(UNPACKED.glob("usr/lib/*-linux-gnu")))} if UNPACKED else {}
        server = subprocess.Popen(
            [*host.prefix, *user, SSHD, "-D", "-e", "-f", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=open(self.folder / f"sshd_{host.address}.log", "w"),
            env={"PATH": os.environ["PATH"], **libraries},
        )
        probe = [*host.prefix, "sh", "-c", f"echo > /dev/tcp/{host.address}/22"]
        deadline = time.monotonic() + 30
        while subprocess.run(["bash" if word == "sh" else word for word in probe], stderr=subprocess.DEVNULL).returncode:
            assert server.poll() is None and time.monotonic() < deadline, "sshd does not listen"
        return server

    def close(self):
        for server in self.servers:
            server.terminate()
            server.wait(timeout=30)

    def processes(self):
        """(pid, command line) of what runs on the hosts, but for what holds them and the servers themselves."""
        own = {os.stat(f"/proc/{host.pid}/ns/net").st_ino for host in self.hosts}
        known = {host.pid for host in self.hosts} | {server.pid for server in self.servers}
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if int(entry.name) in known or os.stat(entry / "ns/net").st_ino not in own:
                    continue
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if command:  # a zombie has none
                    found.append((int(entry.name), command))
            except OSError:
                pass
        return found


@pytest.fixture
def ssh_hosts(three_hosts, tmp_path):  # noqa: F811
    if SSHD is None:
        pytest.skip("there is no sshd (openssh-server)")
    folder = tmp_path / "ssh"
    folder.mkdir()
    hosts = SshHosts(three_hosts, folder)
    try:
        yield hosts
    finally:
        hosts.close()
