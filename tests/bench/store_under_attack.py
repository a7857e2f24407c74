#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What programs of the run's own user that misuse the workers' TCPStore cost an honest worker and the agent.

    tests/bench/store_under_attack.py [--pairs 15] [--only NAME] [--build build]

An agent serves the store; a client makes --calls pairs of set and get of 64 bytes, alone and beside each attack, in turn.
Shows the medians of a pair of calls in microseconds, the median of the ratios, and by how much the agent's memory grew at
most. The attackers have one process; where there are few cores, a part of the ratio is the time that it takes from them: see
only_compute.
"""

import argparse
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from tcpstore_frames import GET, HELLO, MULTI_SET, SET, Client, request, text, u64  # noqa: E402

LARGE = 8 * 1000 * 1000
DEADLINE_S = 60
WARM_UP_CALLS = 100  # cores that slept are slower at first


# ---- Attacks: each gets new connections as long as it lasts, and says when it is in full swing


def connect(port):
    connection = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
    connection.sendall(HELLO)
    connection.settimeout(0.5)
    return connection


def held(port, count, begin):
    """So many connections with which `begin` does something; those that the agent closes are replaced."""
    connections = []
    while True:
        for _ in range(count - len(connections)):
            connection = connect(port)
            try:
                begin(connection)
                connections.append(connection)
            except OSError:  # the agent closed it meanwhile
                connection.close()
        print("ready", flush=True)
        time.sleep(0.05)
        still = []
        for connection in connections:
            try:
                gone = connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
            except BlockingIOError:
                gone = False
            except OSError:
                gone = True
            (connection.close() if gone else still.append(connection))
        connections = still


def silent(port):
    held(port, 1000, lambda connection: None)


def half_requests(port):
    held(port, 60, lambda connection: connection.sendall(request(SET, text(b"half"), u64(LARGE)) + bytes(LARGE // 2)))


def unread_replies(port):
    Client("127.0.0.1", port).set(b"large", bytes(LARGE))
    held(port, 40, lambda connection: connection.sendall(request(GET, text(b"large")) * 100))


def flood(port):
    connection = connect(port)
    connection.settimeout(DEADLINE_S)
    print("ready", flush=True)
    while True:
        connection.sendall(request(SET, text(b"small"), text(b"value")) * 1000)


def small_pieces(port):
    connection = connect(port)
    connection.settimeout(DEADLINE_S)
    pairs = b"".join(text(str(i).encode()) + text(b"v" * 50) for i in range(100_000))
    whole = request(MULTI_SET, u64(100_000)) + pairs
    print("ready", flush=True)
    while True:
        for at in range(0, len(whole), 1024):
            connection.sendall(whole[at : at + 1024])


def only_compute(_port):
    """No misuse: what as many busy processes as a flood has, the sender and the agent, cost an honest worker by themselves."""
    if os.fork() == 0:
        parent = os.getppid()
        while os.getppid() == parent:
            sum(range(1000))
        os._exit(0)
    print("ready", flush=True)
    while True:
        sum(range(1000))


ATTACKS = {attack.__name__: attack for attack in (silent, half_requests, unread_replies, flood, small_pieces, only_compute)}


class Attack:
    def __init__(self, name, port):
        self._process = subprocess.Popen([sys.executable, __file__, "--attack", name, str(port)], stdout=subprocess.PIPE, text=True)
        if self._process.stdout.readline() != "ready\n":
            raise SystemExit(f"{name} did not begin")
        threading.Thread(target=self._process.stdout.read, daemon=True).start()

    def end(self):
        self._process.kill()
        self._process.wait()


# ---- The victim


class Agent:
    def __init__(self, build):
        waits = 'echo "$MASTER_PORT $(ps -o ppid= -p $$)"; exec sleep 100000'
        command = [build / "bin" / "ddprun", "--standalone", "--log-line-prefix-template", "", "sh", "-c", waits]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.port, self.pid = map(int, self._process.stdout.readline().split())

    def resident_mib(self):
        pages = int(pathlib.Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def cpu_ticks(self):
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    def rest(self):
        """Returns when it has done what an attack has left for it: closing connections, returning their memory."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            before = self.cpu_ticks()
            time.sleep(0.3)
            if self.cpu_ticks() == before:
                return
        raise SystemExit("the agent is not idle again")

    def end(self):
        self._process.terminate()
        self._process.wait()


def measure(client, calls):
    times = []
    for i in range(calls + WARM_UP_CALLS):
        begin = time.perf_counter()
        client.set(b"key", b"v" * 64)
        client.get(b"key")
        times.append(time.perf_counter() - begin)
    return 1e6 * statistics.median(times[WARM_UP_CALLS:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--only", choices=ATTACKS)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2] / "build")
    parser.add_argument("--attack", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attack:
        ATTACKS[options.attack[0]](int(options.attack[1]))
    for name in [options.only] if options.only else ATTACKS:
        agent = Agent(options.build)
        client = Client("127.0.0.1", agent.port)
        measure(client, options.calls)
        rest = agent.resident_mib()
        pairs, most = [], rest
        for _ in range(options.pairs):
            agent.rest()
            alone = measure(client, options.calls)
            attack = Attack(name, agent.port)
            beside = measure(client, options.calls)
            most = max(most, agent.resident_mib())
            attack.end()
            pairs.append((alone, beside))
        ratios = [beside / alone for alone, beside in pairs]
        alone, beside = (statistics.median(column) for column in zip(*pairs))
        print(
            f"{name:15} alone {alone:4.0f} us  beside {beside:4.0f} us  ratio {statistics.median(ratios):.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f})  memory +{most - rest:.0f} MiB",
            flush=True,
        )
        agent.end()


if __name__ == "__main__":
    main()
