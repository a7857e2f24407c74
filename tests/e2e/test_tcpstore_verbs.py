# SPDX-License-Identifier: Apache-2.0
"""Each verb of TCPStore's protocol, byte by byte: an agent's listener answers as torch's own server does."""

import datetime
import socket
import struct

import pytest
import tcpstore_frames as frames
from listening_agents import listening_agents
from tcpstore_frames import many, request, text, u64

ANSWER_S = 60
NONCE = b"done"
K, L = b"/k", b"/l"


def set_to(key, value):
    return request(frames.SET, text(key), text(value))


def get(key):
    return request(frames.GET, text(key))


def compare_set(key, old, new):
    return request(frames.COMPARE_SET, text(key), text(old), text(new))


def push(key, value):
    return request(frames.QUEUE_PUSH, text(key), text(value))


# By verb: what a client writes, of which each request comes after the answer to the one before.
CONVERSATIONS = {
    "ping": [request(frames.PING, b"abcd")],
    "set and get": [set_to(K, b"v"), get(K), set_to(K, b""), get(K), get(L), set_to(K, bytes(range(256))), get(K)],
    "compare set": [
        *(compare_set(K, b"wrong", b"new"), request(frames.CHECK, many(K))),
        *(compare_set(K, b"", b"first"), compare_set(K, b"wrong", b"new"), compare_set(K, b"first", b"second"), get(K)),
    ],
    "add": [request(frames.ADD, text(K), u64(number)) for number in (5, -7, 0, 2**40)] + [get(K)],
    "add to a number that was set": [set_to(K, b"12"), request(frames.ADD, text(K), u64(1)), get(K)],
    "check": [set_to(K, b""), *(request(frames.CHECK, many(*keys)) for keys in ((K,), (L,), (K, L), ()))],
    "wait": [set_to(K, b""), set_to(L, b""), request(frames.WAIT, many(K, L)), request(frames.WAIT, many(K))],
    "cancel wait": [request(frames.WAIT, many(K)) + request(frames.CANCEL_WAIT), set_to(K, b"v"), get(K)],
    "number of keys": [request(frames.NUM_KEYS), set_to(K, b""), set_to(L, b""), push(b"/q", b"v"), request(frames.NUM_KEYS)],
    "delete": [set_to(K, b"v"), *(request(frames.DELETE, text(K)) for _ in range(2)), request(frames.NUM_KEYS)],
    "append": [request(frames.APPEND, text(K), text(value)) for value in (b"po", b"", b"tato")] + [get(K)],
    "multi get": [set_to(K, b"1"), set_to(L, b""), request(frames.MULTI_GET, many(K, L, K)), request(frames.MULTI_GET, many())],
    "multi set": [request(frames.MULTI_SET, u64(2), text(K), text(b"1"), text(L), text(b"2")), get(K), get(L)],
    "queue push, length and pop": [
        *(request(frames.QUEUE_LEN, text(K)), request(frames.QUEUE_POP, text(K)), request(frames.CHECK, many(K))),
        *(push(K, b"1"), request(frames.QUEUE_LEN, text(K)), request(frames.CHECK, many(K)), request(frames.WAIT, many(K))),
        *(request(frames.QUEUE_POP, text(K)), request(frames.QUEUE_LEN, text(K)), request(frames.CHECK, many(K))),
        *(push(K, b"2"), push(K, b"3"), request(frames.QUEUE_LEN, text(K))),
    ],
    "list of keys": [request(frames.LIST_KEYS), push(b"/q", b"v"), set_to(K, b"v"), request(frames.LIST_KEYS)],
}
# Verbs that came after 2.11, where torch has them, with the answers of the first torch server that has them.
NEWER = {
    "barrier": (
        "2.15.0",
        [
            *(request(frames.BARRIER, text(K), u64(1)), get(K), request(frames.BARRIER, text(K), u64(2)), get(K)),
            *(request(frames.BARRIER, text(L), u64(2)) + request(frames.CANCEL_WAIT), get(L), request(frames.BARRIER, text(L), u64(2))),
        ],
        [b"\0", text(b"1"), b"\0", text(b"2"), b"\1", text(b"1"), b"\0"],
    )
}
ALL_VERBS = set(range(frames.SET, frames.BARRIER + 1))


def answers(host, port, requests):
    """What comes back for each request; a PING behind it says where its answer ends."""
    seen = []
    with socket.create_connection((host, port), timeout=ANSWER_S) as connection:
        connection.sendall(frames.HELLO)
        for one in requests:
            connection.sendall(one)
            connection.sendall(request(frames.PING, NONCE))
            answer = b""
            while not answer.endswith(NONCE):
                more = connection.recv(65_536)
                assert more, f"the server hung up after {one} and {answer}"
                answer += more
            seen.append(answer[: -len(NONCE)])
    return seen


def test_the_conversations_have_all_verbs():
    newer = {name: requests for name, (_, requests, _) in NEWER.items()}
    assert {one[0] for requests in {**CONVERSATIONS, **newer}.values() for one in requests} | {frames.CANCEL_WAIT} == ALL_VERBS


@pytest.mark.parametrize("verb", CONVERSATIONS)
def test_an_agent_answers_as_torch_does(tmp_path, verb):
    dist = pytest.importorskip("torch.distributed")
    requests = CONVERSATIONS[verb]
    # It has a client of its own, which sets no key.
    torchs = dist.TCPStore("127.0.0.1", 0, None, True, datetime.timedelta(seconds=ANSWER_S), wait_for_workers=False)
    expected = answers("127.0.0.1", torchs.port, requests)
    with listening_agents(tmp_path) as (agent,):
        assert answers(agent.host, agent.port, requests) == expected


@pytest.mark.parametrize("verb", NEWER)
def test_an_agent_answers_as_a_newer_torch_does(tmp_path, verb):
    dist = pytest.importorskip("torch.distributed")
    _, requests, recorded = NEWER[verb]
    with listening_agents(tmp_path) as (agent,):
        assert answers(agent.host, agent.port, requests) == recorded
    if hasattr(dist.TCPStore, verb):
        torchs = dist.TCPStore("127.0.0.1", 0, None, True, datetime.timedelta(seconds=ANSWER_S), wait_for_workers=False)
        assert answers("127.0.0.1", torchs.port, requests) == recorded


def test_a_wait_ends_when_another_sets_the_key(tmp_path):
    with listening_agents(tmp_path) as (agent,):
        setter = frames.Client(agent.host, agent.port)
        with socket.create_connection((agent.host, agent.port), timeout=ANSWER_S) as waiting:
            waiting.sendall(frames.HELLO + request(frames.WAIT, many(K, L)))
            setter.set(K, b"")
            setter.set(L, b"")
            assert waiting.recv(1) == b"\0"
            waiting.sendall(request(frames.CANCEL_WAIT))
            assert waiting.recv(1) == b"\1"
        setter.close()


@pytest.mark.parametrize("wrong", [b"\x00" + struct.pack("<I", 7), request(frames.PING, NONCE)], ids=["number", "opcode"])
def test_a_wrong_greeting_ends_the_connection(tmp_path, wrong):
    with (
        listening_agents(tmp_path) as (agent,),
        socket.create_connection((agent.host, agent.port), timeout=ANSWER_S) as connection,
    ):
        connection.sendall(wrong)
        try:
            assert connection.recv(1) == b""
        except ConnectionResetError:
            pass
