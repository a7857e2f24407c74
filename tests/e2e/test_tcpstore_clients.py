# SPDX-License-Identifier: Apache-2.0
"""The TCPStore client of each version of PyTorch at an agent's listener: every operation gives what it gives at torch's own server."""

import json
import os
import socket

import pytest
import tcpstore_frames as frames
from conftest import run, wait_for
from listening_agents import listening_agents

pytest.importorskip("torch")
from torch_versions import each_version  # noqa: E402

CALLS = os.path.join(os.path.dirname(__file__), "tcpstore_client_calls.py")
# Calls that the client answers itself, without a request.
LOCAL = {"host", "port", "libuvBackend"}


def called(python, *where):
    done = run([python, CALLS, *where], timeout=280)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@each_version()
def test_every_operation_gives_what_it_gives_at_torchs_own_server(tmp_path, python):
    theirs = called(python, "own")
    with listening_agents(tmp_path) as (agent,):
        ours = called(python, agent.host, agent.port)
    assert ours == theirs
    # An operation that a newer version brings has a row here before it is missed by somebody.
    assert set(ours["public"]) - LOCAL == set(ours["store"]), "tcpstore_client_calls.py calls all that the client has"
    assert ours["store"]["wait"][2] == "DistStoreError" and ours["store"]["get"][:2] == ["v", ""]


def test_an_opcode_that_is_newer_than_all_is_one_sentence(tmp_path):
    with listening_agents(tmp_path) as (agent,):
        with socket.create_connection((agent.host, agent.port), timeout=frames.ANSWER_S) as connection:
            connection.sendall(frames.HELLO + bytes([frames.BARRIER + 1]))
            assert connection.recv(1) == b""
        said = wait_for("the sentence", lambda: (tmp_path / "err0").read_text())
        client = frames.Client(agent.host, agent.port)
        client.set(b"/k", b"v")
        assert client.get(b"/k") == b"v", "the others go on"
        client.close()
    assert said == (
        "ddprun: closed a worker's connection to the store: a request of its TCPStore has the unknown opcode "
        f"{frames.BARRIER + 1}; where its torch is newer than this ddprun, update ddprun, or start with --worker-store rank0\n"
    )
