# SPDX-License-Identifier: Apache-2.0
"""Mutated frames of TCPStore's protocol at the listeners of running agents harm nobody."""

import contextlib
import os
import pathlib
import random
import socket
import threading

import pytest
from conftest import wait_for
from listening_agents import listening_agents
from tcpstore_frames import HELLO, Client, frame_of_each_verb, u64

FRAMES = 2000
SEED = 20_264
AGENT_GROWTH_MB_MAX = 8
# These run before the memory is first looked at: buffers and pools grow at first.
WARM_UP_FRAMES = 200
OPEN_AT_ONCE = 32
END_S = 60
# What a length or a count is changed to: around each limit of the protocol and of its types.
LIMITS = (2**13, 2**17, 2**23, 2**24, 2**31, 2**32, 2**63, 2**64)
LENGTHS = (0, 1, 5, 2**8, *(limit + more for limit in LIMITS for more in (-1, 0, 1)))
FRAME_OF_VERB = frame_of_each_verb(b"/mutated", b"/mutated too")


def flip_bits(data, chance):
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def change_a_length(data, chance):
    """Of 8 bytes behind an opcode or anywhere, which is where lengths are."""
    at = 1 if chance.random() < 0.5 else chance.randrange(len(data))
    return data[:at] + u64(chance.choice(LENGTHS)) + data[at + 8 :]


def truncate(data, chance):
    return data[: chance.randrange(len(data))]


def splice(data, chance):
    other = chance.choice(FRAME_OF_VERB)
    return data[: chance.randrange(len(data) + 1)] + other[chance.randrange(len(other)) :]


def drop_or_repeat(data, chance):
    begin = chance.randrange(len(data))
    end = chance.randrange(begin, len(data)) + 1
    return data[:begin] + data[begin:end] * chance.choice((0, 2, 3)) + data[end:]


MUTATIONS = (flip_bits, change_a_length, truncate, splice, drop_or_repeat)


def mutated_frames(count, chance):
    """What a connection writes: frames of each verb in turn, mutated, most of them behind a valid greeting."""
    for number in range(count):
        data = FRAME_OF_VERB[number % len(FRAME_OF_VERB)]
        for _ in range(chance.randint(1, 3)):
            data = chance.choice(MUTATIONS)(data, chance) or data
        behind = b"".join(chance.sample(FRAME_OF_VERB[1:], chance.randint(0, 3)))
        yield (HELLO if chance.random() < 0.9 else b"") + data + behind


def read_to_the_end(connection):
    """What was sent has been read and the connection is over, whoever ended it."""
    with connection, contextlib.suppress(ConnectionError):
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65_536):
            pass


def send_all(agent, frames):
    """Each on a connection of its own, of which some stay open meanwhile; all are over at the end."""
    left_open = []
    sent = 0
    for number, frame in enumerate(frames):
        connection = socket.create_connection((agent.host, agent.port), timeout=END_S)
        with contextlib.suppress(ConnectionError):  # the agent may hang up within a frame
            connection.sendall(frame)
        sent += 1
        if number % 4 == 0:
            left_open.append(connection)
            if len(left_open) > OPEN_AT_ONCE:
                read_to_the_end(left_open.pop(0))
        else:
            read_to_the_end(connection)
    for connection in left_open:
        read_to_the_end(connection)
    return sent


class GoodClient(threading.Thread):
    """Sets and gets until it is told to end, and remembers the first wrong answer."""

    def __init__(self, agent):
        super().__init__(daemon=True)
        self._client = Client(agent.host, agent.port)
        self._enough = threading.Event()
        self.turns = 0
        self.wrong = None

    def run(self):
        try:
            while not self._enough.is_set():
                self._take_turn(self.turns)
                self.turns += 1
        except Exception as error:
            self.wrong = error
        finally:
            self._client.close()

    def end(self):
        self._enough.set()
        self.join(END_S)
        assert not self.is_alive(), "the good client has no answer"

    def _take_turn(self, turn):
        key, value = b"/good/%d" % (turn % 50), b"value of turn %d" % turn
        self._client.set(key, value)
        self._check(self._client.get(key), value)
        self._check(self._client.add(b"/good count", 1), turn + 1)
        self._check(self._client.multi_get(key, b"/good count"), [value, b"%d" % (turn + 1)])
        self._client.queue_push(b"/good queue", value)
        self._check(self._client.queue_pop(b"/good queue"), value)
        self._check(self._client.queue_pop(b"/good queue"), None)

    @staticmethod
    def _check(answer, expected):
        assert answer == expected, f"{answer} instead of {expected}"


def memory_mb(pid):
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def descriptors(pid):
    return len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))


@pytest.mark.parametrize("nodes", [1, 2], ids=["of the service's agent", "of an agent beyond the network"])
def test_mutated_frames_harm_nothing(tmp_path, nodes):
    chance = random.Random(SEED + nodes)
    with listening_agents(tmp_path, nodes) as agents:
        agent = agents[-1]
        pids = [one.pid for one in agents]
        good = GoodClient(agent)
        good.start()
        wait_for("the good client's first turn", lambda: good.turns > 0 or good.wrong, END_S)
        open_before = [descriptors(pid) for pid in pids]
        send_all(agent, mutated_frames(WARM_UP_FRAMES, chance))
        memory_before = [memory_mb(pid) for pid in pids]
        turns_before = good.turns
        assert send_all(agent, mutated_frames(FRAMES, chance)) == FRAMES
        turns = good.turns - turns_before
        wait_for("the descriptors of before", lambda: [descriptors(pid) for pid in pids] == open_before, END_S)
        growth = [memory_mb(pid) - before for pid, before in zip(pids, memory_before)]
        good.end()
        assert good.wrong is None
        assert turns > 0
        assert [one.pid for one in agents] == pids
        print(f"{turns} turns of the good client; the agents grew by", *(f"{mb:.1f} MB" for mb in growth))
        assert max(growth) < AGENT_GROWTH_MB_MAX
