#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What strangers cost a service: slow connections of four kinds and a scan of all ports, while a run goes on.

    tests/bench/slow_connections.py [--connections 5000] [--ports 65535] [--build build]

Starts ddprun-rendezvous and two nodes, then connects and holds; shows the service's resident memory before, at most
and afterwards, how long a new node takes to join meanwhile, and whether the run noticed anything.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import resource
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

STRANGER = "127.0.0.2"  # its own address, so that the nodes' is another one


def client_hello():
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="rendezvous.ddprun")
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def connect(port, host="127.0.0.1"):
    connection = socket.socket()
    connection.bind((STRANGER, 0))
    connection.settimeout(10)
    connection.connect((host, port))
    connection.settimeout(0)
    return connection


class Strangers:
    """Connections that never come to anything; each one that is closed is made again, until the end."""

    def __init__(self, port, count):
        self.port, self.count, self.made = port, count, 0
        self.hello = client_hello()
        self.end = threading.Event()
        self.full = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def open(self, kind):
        connection = connect(self.port)
        first = {0: b"", 1: b"\x16\x03\x01", 2: self.hello, 3: b"PRI * HTTP/2.0\r\n"}[kind]
        if first:
            connection.send(first)
        self.made += 1
        return connection

    def run(self):
        held = []
        while not self.end.is_set():
            while len(held) < self.count and not self.end.is_set():
                try:
                    held.append((self.made % 4, self.open(self.made % 4)))
                except OSError:
                    break
            if len(held) >= self.count:
                self.full.set()
            still = []
            for kind, connection in held:
                try:
                    if kind == 1:
                        connection.send(b"\x00")  # a byte at a time
                    if connection.recv(65536):
                        still.append((kind, connection))
                        continue
                    connection.close()
                except BlockingIOError:
                    still.append((kind, connection))
                except OSError:
                    connection.close()
            held = still
            self.end.wait(0.05)
        for _, connection in held:
            connection.close()

    def stop(self):
        self.end.set()
        self.thread.join()


def scan(ports):
    """As a port scanner does: connect to every port, and ask what answers in its usual words."""

    def ask(port):
        for words in (b"", b"GET / HTTP/1.0\r\n\r\n", b"\r\n\r\n", b"OPTIONS / RTSP/1.0\r\n\r\n", b"\x80\x00\x00\x28"):
            try:
                with connect(port) as connection:
                    connection.settimeout(0.2)
                    connection.send(words)
                    connection.recv(100)
            except ConnectionRefusedError:
                return 0
            except OSError:
                pass
        return 1

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        return sum(pool.map(ask, ports, chunksize=64))


def resident_kb(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1))


class MemoryWatch:
    def __init__(self, pid):
        self.pid, self.peak = pid, 0
        self.end = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.end.wait(0.02):
            self.peak = max(self.peak, resident_kb(self.pid))

    def stop(self):
        self.end.set()
        self.thread.join()
        return self.peak


def measure(build, connections, ports):
    """A dictionary of figures; raises where the run was disturbed."""
    env = dict(os.environ, DDPRUN_TOKEN=os.urandom(32).hex())
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    ddprun = str(pathlib.Path(build) / "bin" / "ddprun")
    with tempfile.TemporaryDirectory() as folder:
        service = subprocess.Popen([ddprun + "-rendezvous", "--port", "0"], env=env, stdout=subprocess.PIPE, text=True)
        started = [service]
        strangers = memory = None
        try:
            target = service.stdout.readline().split()[-1]
            port = int(target.rsplit(":", 1)[1])

            def node(run_id, nodes, script):
                command = [ddprun, "--nnodes", str(nodes), "--rdzv-endpoint", target, "--rdzv-id", run_id]
                process = subprocess.Popen(
                    [*command, "sh", "-c", script], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
                )
                started.append(process)
                return process

            os.mkfifo(f"{folder}/go")
            nodes = [node("run", 2, f"echo in round $DDPRUN_ROUND; read line < {folder}/go") for _ in range(2)]
            for process in nodes:
                assert "in round 1" in process.stdout.readline()
            before = resident_kb(service.pid)
            memory = MemoryWatch(service.pid)
            strangers = Strangers(port, connections)
            assert strangers.full.wait(60), f"only {strangers.made} connections came about"
            joins = []
            for i in range(10):
                begin = time.monotonic()
                assert node(f"new-{i}", 1, "true").wait(30) == 0
                joins.append(time.monotonic() - begin)
            scan_begin = time.monotonic()
            answered = scan([port, *(p for p in range(1, ports + 1) if p != port)])
            scan_time = time.monotonic() - scan_begin
            strangers.stop()
            peak = memory.stop()
            with open(f"{folder}/go", "w") as go:
                go.write("1\n2\n")
            for process in nodes:
                out, err = process.communicate(timeout=30)
                assert process.returncode == 0 and "round 2" not in out, (process.returncode, out, err)
            return {
                "connections held": connections,
                "connections made": strangers.made,
                "ports scanned": ports,
                "ports that answered": answered,
                "scan took, s": round(scan_time, 1),
                "memory before, KB": before,
                "memory at most, KB": peak,
                "memory grew by, MB": round((peak - before) / 1024, 1),
                "a new node meanwhile, ms, median": round(sorted(joins)[5] * 1000),
                "a new node meanwhile, ms, worst": round(max(joins) * 1000),
            }
        finally:
            if strangers is not None:
                strangers.stop()
            if memory is not None:
                memory.stop()
            for process in started:
                if process.poll() is None:
                    process.terminate()
                process.communicate(timeout=30)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connections", type=int, default=5000)
    parser.add_argument("--ports", type=int, default=65535)
    parser.add_argument("--build", default=str(pathlib.Path(__file__).resolve().parents[2] / "build"))
    arguments = parser.parse_args()
    for name, value in measure(arguments.build, arguments.connections, arguments.ports).items():
        print(f"{name:35} {value}")


if __name__ == "__main__":
    sys.exit(main())
