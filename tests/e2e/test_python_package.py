# SPDX-License-Identifier: Apache-2.0
"""The Python package ddprun against an agent of the test's own."""

import os
import socket
import sys
import threading

import pytest
from conftest import PYTHON

sys.path.insert(0, PYTHON)
from ddprun import Rounds, progress  # noqa: E402

DEADLINE = 10


class Agent:
    def __init__(self, folder):
        self.path = str(folder / "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(DEADLINE)

    def receive(self):
        return self.socket.recv(1024).decode()

    def send(self, text):
        self.socket.sendto(text.encode(), self.path + ".rounds")

    def environ(self):
        return {"DDPRUN_NOTIFY_SOCKET": self.path, "DDPRUN_ROUND": "7"}


@pytest.fixture
def agent(tmp_path):
    agent = Agent(tmp_path)
    yield agent
    agent.socket.close()


def test_a_program_without_an_agent_is_not_kept():
    rounds = Rounds(environ={})
    assert not rounds.keep()
    assert not rounds.kept


def test_goes_from_round_to_round(agent):
    rounds = Rounds(environ=agent.environ())
    assert rounds.keep()
    assert agent.receive() == "KEEP=1\n"
    assert not rounds.broken()
    for number in (8, 9):
        agent.send(f"BROKEN={number - 1}\n")
        assert rounds.broken(timeout=DEADLINE)
        rounds.left()
        assert agent.receive() == f"LEFT={number - 1}\n"
        agent.send(f"ROUND={number}\nRANK=1\nODD=a=b\n")
        assert rounds.wait_round(DEADLINE) == {"RANK": "1", "ODD": "a=b"}
        assert rounds.round == number
        assert not rounds.broken()


def test_a_round_that_begins_ends_the_one_before(agent):
    over = threading.Event()
    rounds = Rounds(on_broken=over.set, environ=agent.environ())
    rounds.keep()
    agent.receive()
    agent.send("ROUND=8\nRANK=0\n")
    assert over.wait(DEADLINE)
    assert rounds.broken()
    assert rounds.wait_round(DEADLINE) == {"RANK": "0"}


def test_leaves_by_itself_with_the_reason(agent):
    rounds = Rounds(environ=agent.environ())
    rounds.keep()
    agent.receive()
    rounds.left("all_reduce failed:\nconnection reset by peer")
    assert agent.receive() == "LEFT=7\nERROR=all_reduce failed: connection reset by peer\n"


def test_a_round_that_is_over_before_it_was_entered_is_not_given(agent):
    rounds = Rounds(environ=agent.environ())
    rounds.keep()
    agent.receive()
    agent.send("ROUND=8\nRANK=0\n")
    agent.send("BROKEN=8\n")
    agent.send("ROUND=9\nRANK=1\n")
    assert rounds.broken(timeout=DEADLINE)
    agent.send("nonsense")
    while rounds.round != 9:  # the first may have been taken before the second came
        variables = rounds.wait_round(DEADLINE)
    assert variables == {"RANK": "1"}
    with pytest.raises(TimeoutError):
        rounds.wait_round(timeout=0)


def test_progress_is_told(agent, monkeypatch):
    monkeypatch.setenv("DDPRUN_NOTIFY_SOCKET", agent.path)
    progress(12, epoch=1, rate=310.5, unit="images", section="data\nSTEP=13")
    assert agent.receive() == "STEP=12\nEPOCH=1\nRATE=310.5\nUNIT=images\nSECTION=data STEP=13\n"
    progress(section="validation")
    assert agent.receive() == "SECTION=validation\n"


def test_progress_never_stops_a_program(agent, monkeypatch):
    monkeypatch.delenv("DDPRUN_NOTIFY_SOCKET", raising=False)
    progress(1)
    monkeypatch.setenv("DDPRUN_NOTIFY_SOCKET", agent.path)
    for step in range(10_000):  # nobody reads
        progress(step)
    agent.socket.close()
    os.unlink(agent.path)
    progress(2)
