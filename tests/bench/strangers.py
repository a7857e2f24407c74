#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What hostile peers cost a service: its memory at most, and how long a node takes to join meanwhile.

    tests/bench/strangers.py [--build build] [--only NAME]

Each attack has a service of its own, on the loopback, and ends by itself after --seconds: TLS handshakes that stall (of
one address, of 500), a store message of empty requests, headers without an end, calls that are reset at once, pings that
nobody reads the answers of.
"""

import argparse
import contextlib
import os
import pathlib
import re
import resource
import select
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
JOINS = 5
STORE = "/ddprun.v1.Store/Exchange"
SESSION = "/ddprun.v1.Rendezvous/Session"


# ---- Who attacks


def client_hello():
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="rendezvous.ddprun")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def stalled_handshakes(port, count, addresses, end):
    """Holds so many connections that have sent a ClientHello; makes each one that is closed again."""
    hello = client_hello()
    epoll = select.epoll()
    held, made, index = {}, 0, 0
    while not end.is_set():
        for _ in range(64):
            if len(held) >= count:
                break
            connection = socket.socket()
            connection.setblocking(False)
            if addresses > 1:
                host = index % addresses
                connection.bind((f"127.1.{host // 250}.{host % 250 + 1}", 0))
            index += 1
            connection.connect_ex(("127.0.0.1", port))
            epoll.register(connection.fileno(), select.EPOLLOUT)
            held[connection.fileno()] = connection
        for fd, events in epoll.poll(0.01, 256):
            try:
                if events & select.EPOLLOUT:
                    held[fd].send(hello)
                    made += 1
                    epoll.modify(fd, select.EPOLLIN)
                elif not held[fd].recv(65536):
                    held.pop(fd).close()
            except BlockingIOError:
                pass
            except OSError:
                held.pop(fd).close()
    for connection in held.values():
        connection.close()
    return f"{made} connections"


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def header(name, value):
    def text(content):
        if len(content) < 127:
            return bytes((len(content),)) + content
        size, rest = b"\x7f", len(content) - 127
        while rest >= 128:
            size, rest = size + bytes((0x80 | rest % 128,)), rest // 128
        return size + bytes((rest,)) + content

    return b"\0" + text(name.encode()) + text(value.encode())


def call_headers(path):
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "x", "te": "trailers"}
    return b"".join(header(*field) for field in (*fields.items(), ("content-type", "application/grpc")))


def connect(port):
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    connection.sendall(PREFACE + frame(4, 0, 0))
    return connection


def flood(port, begin, piece, end, megabytes=2048):
    """Sends pieces until the time or the bytes are over; makes each connection that is closed again."""
    sent = connections = closed = unread = 0
    while not end.is_set() and sent < megabytes << 20:
        try:
            with connect(port) as connection:
                connections += 1
                connection.sendall(begin)
                number = 0
                while not end.is_set() and sent < megabytes << 20:
                    block = b"".join(piece(number + i) for i in range(64))
                    number += 64
                    connection.sendall(block)
                    sent += len(block)
        except TimeoutError:
            unread += 1
        except OSError:
            closed += 1
    end.wait()
    return f"{sent >> 20} MB over {connections} connections; {closed} closed, {unread} not read any more"


def stream_of(number):
    return 2 * number + 1


def endless_headers(port, end):
    begin = frame(1, 0, 1, call_headers(SESSION))
    return flood(port, begin, lambda i: frame(9, 0, 1, header(f"x{i}", "x" * 4000)), end)


def rapid_reset(port, end):
    call = call_headers(SESSION)

    def piece(i):
        return frame(1, 4, stream_of(i), call) + frame(3, 0, stream_of(i), b"\0\0\0\x08")

    return flood(port, b"", piece, end)


def pings(port, end):
    return flood(port, b"", lambda _: frame(6, 0, 0, b"pingping") * 64, end)


class Http2:
    """A client that sends what the service's windows allow."""

    def __init__(self, port):
        self.connection, self.bytes = connect(port), b""
        self.window = self.stream_window = 65535

    def read_frame(self):
        while len(self.bytes) < 9 or len(self.bytes) < 9 + int.from_bytes(self.bytes[:3], "big"):
            got = self.connection.recv(65536)
            if not got:
                raise OSError("closed")
            self.bytes += got
        size, kind, flags = int.from_bytes(self.bytes[:3], "big"), self.bytes[3], self.bytes[4]
        stream, payload = int.from_bytes(self.bytes[5:9], "big"), self.bytes[9 : 9 + size]
        self.bytes = self.bytes[9 + size :]
        if kind == 4 and not flags & 1:
            for at in range(0, size, 6):
                if payload[at : at + 2] == b"\0\4":
                    self.stream_window += int.from_bytes(payload[at + 2 : at + 6], "big") - 65535
            self.connection.sendall(frame(4, 1, 0))
        elif kind == 6 and not flags & 1:
            self.connection.sendall(frame(6, 1, 0, payload))
        elif kind == 8:
            increment = int.from_bytes(payload, "big")
            if stream:
                self.stream_window += increment
            else:
                self.window += increment
        elif kind in (3, 7) or (kind == 1 and flags & 1):
            raise OSError("the call was ended")

    def send_message(self, path, message):
        self.connection.sendall(frame(1, 4, 1, call_headers(path)))
        data = b"\0" + struct.pack(">I", len(message)) + message
        while data:
            room = min(16384, self.window, self.stream_window, len(data))
            if room <= 0:
                self.read_frame()
                continue
            self.connection.sendall(frame(0, 0, 1, data[:room]))
            self.window, self.stream_window, data = self.window - room, self.stream_window - room, data[room:]


def store_bomb(port, end):
    """Empty requests, each of two bytes, as many as a message may have."""
    client = Http2(port)
    try:
        client.send_message(STORE, b"\x12\0" * (8 * 1024 * 1024 - 1000))
        while True:
            client.read_frame()
    except OSError as error:
        end.wait()
        return str(error)


# ---- Who is attacked


def peak_mb(pid):
    return int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1)) >> 10


def resident_mb(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1)) >> 10


def seconds_of(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def join_ms(ddprun, env, target, flags, name):
    command = [ddprun, "--nnodes", "1", "--rdzv-endpoint", target, "--rdzv-id", name, *flags, "true"]
    begin = time.monotonic()
    with contextlib.suppress(subprocess.TimeoutExpired):
        if subprocess.run(command, env=env, timeout=40, capture_output=True).returncode == 0:
            return round((time.monotonic() - begin) * 1000)
    return None


def measure(build, attack, flags, seconds):
    env = dict(os.environ, DDPRUN_TOKEN=os.urandom(32).hex())
    ddprun = str(pathlib.Path(build) / "bin" / "ddprun")
    command = [ddprun + "-rendezvous", "--port", "0", *flags]
    service = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    end, said = threading.Event(), []
    try:
        target = service.stdout.readline().split()[-1]
        port = int(target.rsplit(":", 1)[1])
        before = resident_mb(service.pid)
        attacker = threading.Thread(target=lambda: said.append(attack(port, end)))
        timer = threading.Timer(seconds, end.set)
        attacker.start()
        timer.start()
        end.wait(min(2, seconds))  # let it get into its stride
        joins = [join_ms(ddprun, env, target, flags, f"run-{i}") for i in range(JOINS)]
        end.wait()
        attacker.join()
        done = [join for join in joins if join is not None]
        return {
            "joins, ms": ", ".join("failed" if join is None else str(join) for join in joins),
            "worst": max(done) if len(done) == JOINS else "failed",
            "memory before and at most, MB": f"{before} -> {peak_mb(service.pid)}",
            "processor time of the service, s": round(seconds_of(service.pid), 1),
            "attack": "; ".join(said),
        }
    finally:
        end.set()
        service.terminate()
        service.communicate(timeout=30)


ATTACKS = {
    "nothing": (lambda _, end: end.wait() and "", []),
    "100 handshakes of one address": (lambda port, end: stalled_handshakes(port, 100, 1, end), []),
    "2 000 handshakes of 500": (lambda port, end: stalled_handshakes(port, 2000, 500, end), []),
    "8 000 handshakes of 500": (lambda port, end: stalled_handshakes(port, 8000, 500, end), []),
    "empty store requests": (store_bomb, ["--insecure"]),
    "headers without an end": (endless_headers, ["--insecure"]),
    "rapid reset": (rapid_reset, ["--insecure"]),
    "pings": (pings, ["--insecure"]),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(pathlib.Path(__file__).resolve().parents[2] / "build"))
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--only", default="", help="attacks whose names have this in them")
    arguments = parser.parse_args()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    for name, (attack, flags) in ATTACKS.items():
        if arguments.only not in name:
            continue
        print(name, flush=True)
        for what, value in measure(arguments.build, attack, flags, arguments.seconds).items():
            print(f"  {what:34} {value}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
