# SPDX-License-Identifier: Apache-2.0
"""What a client of torch's TCPStore writes, verb by verb, and a client that speaks it."""

import socket
import struct

HELLO = b"\x00" + struct.pack("<I", 0x3C85F7CE)
SET, COMPARE_SET, GET, ADD, CHECK, WAIT, NUM_KEYS, DELETE, APPEND = range(1, 10)
MULTI_GET, MULTI_SET, CANCEL_WAIT, PING, QUEUE_PUSH, QUEUE_POP, QUEUE_LEN, LIST_KEYS, BARRIER = range(10, 19)
ANSWER_S = 60


def u64(number):
    return struct.pack("<Q", number % 2**64)


def text(content):
    """A key or a value."""
    return u64(len(content)) + content


def many(*contents):
    return u64(len(contents)) + b"".join(text(content) for content in contents)


def request(opcode, *fields):
    return bytes((opcode,)) + b"".join(fields)


def frame_of_each_verb(key, other):
    """One valid request of each verb."""
    return [
        HELLO,
        request(PING, struct.pack("<I", 7)),
        request(SET, text(key), text(b"value")),
        request(GET, text(key)),
        request(COMPARE_SET, text(key), text(b"value"), text(b"new")),
        request(ADD, text(other), u64(-3)),
        request(CHECK, many(key, other)),
        request(WAIT, many(key, other)),
        request(CANCEL_WAIT),
        request(NUM_KEYS),
        request(APPEND, text(key), text(b"more")),
        request(MULTI_SET, u64(2), text(key), text(b"1"), text(other), text(b"2")),
        request(MULTI_GET, many(key, other)),
        request(DELETE, text(key)),
        request(QUEUE_PUSH, text(key), text(b"first")),
        request(QUEUE_LEN, text(key)),
        request(QUEUE_POP, text(key)),
        request(LIST_KEYS),
        request(BARRIER, text(other), u64(1)),
    ]


class Client:
    """Each method asks and returns the answer; an agent that hangs up or says too little is a ConnectionError."""

    def __init__(self, host, port):
        self._socket = socket.create_connection((host, port), timeout=ANSWER_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._write(HELLO)

    def close(self):
        self._socket.close()

    def _write(self, data):
        self._socket.sendall(data)

    def _read(self, count):
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            if not more:
                raise ConnectionError("the agent hung up")
            data += more
        return data

    def _number(self):
        return struct.unpack("<q", self._read(8))[0]

    def _text(self):
        return self._read(self._number())

    def set(self, key, value):
        self._write(request(SET, text(key), text(value)))

    def get(self, key):
        self._write(request(GET, text(key)))
        return self._text()

    def add(self, key, number):
        self._write(request(ADD, text(key), u64(number)))
        return self._number()

    def multi_get(self, *keys):
        self._write(request(MULTI_GET, many(*keys)))
        return [self._text() for _ in keys]

    def queue_push(self, key, value):
        self._write(request(QUEUE_PUSH, text(key), text(value)))

    def queue_pop(self, key):
        """None: it is empty."""
        self._write(request(QUEUE_POP, text(key)))
        return self._text() if self._number() else None
