# SPDX-License-Identifier: Apache-2.0
"""`python -m ddprun.mcp`: an assistant's view of runs, over the Model Context Protocol."""

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest
from conftest import BIN, DDPRUN, PYTHON, clean_environment, run, wait_for

DDPCTL = str(BIN / "ddpctl")


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield
    for one in json.loads(run([DDPCTL, "runs", "--json"]).stdout)["runs"]:
        if one["state"] in ("running", "starting"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(one["pid"], signal.SIGTERM)


class Server:
    def __init__(self, *flags):
        env = clean_environment(PYTHONPATH=PYTHON)
        env["PATH"] = f"{BIN}{os.pathsep}{env['PATH']}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ddprun.mcp", *flags], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.number = 0

    def send(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def ask(self, method, **params):
        self.number += 1
        self.send(json.dumps({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}))
        reply = json.loads(self.process.stdout.readline())
        assert (reply["jsonrpc"], reply["id"]) == ("2.0", self.number)
        return reply

    def call(self, name, **arguments):
        result = self.ask("tools/call", name=name, arguments=arguments)["result"]
        return result["isError"], result["content"][0]["text"]

    def __enter__(self):
        return self

    def __exit__(self, *why):
        self.process.stdin.close()
        assert self.process.wait(timeout=60) == 0


def test_an_assistant_looks_and_changes_nothing(home):
    with Server() as server:
        begun = server.ask("initialize", protocolVersion="2025-03-26", capabilities={}, clientInfo={"name": "x", "version": "1"})["result"]
        assert (begun["protocolVersion"], begun["serverInfo"]["name"]) == ("2025-03-26", "ddprun")
        server.send(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))  # wants no answer
        assert server.ask("ping")["result"] == {}
        tools = {tool["name"]: tool for tool in server.ask("tools/list")["result"]["tools"]}
        assert set(tools) == {"list_runs", "why", "run_status", "run_events", "run_logs", "rank_stacks"}
        assert all(tool["annotations"]["readOnlyHint"] for tool in tools.values())
        assert server.call("list_runs") == (False, '{"version":1,"runs":[]}\n')
        failed, text = server.call("why")
        assert failed
        assert "which rendezvous service?" in text
        name = run([DDPRUN, "--detach", "sh", "-c", "echo hello; sleep 1000"]).stdout.strip()
        assert json.loads(server.call("list_runs")[1])["runs"][0]["name"] == name
        assert json.loads(server.call("run_status", run=name)[1])["runs"][0]["phase"] == "running"
        assert json.loads(server.call("why", run=name)[1])["state"] == "running"
        wait_for("a line", lambda: "hello" in server.call("run_logs", rank=0, lines=5)[1])
        assert "round 1 begins" in server.call("run_events", run=name, lines=3)[1]
        assert "stacks of" in server.call("rank_stacks", rank=0)[1]
        refused = server.ask("tools/call", name="stop_run", arguments={})["error"]
        assert "no tool 'stop_run'" in refused["message"]


def test_bad_requests_get_errors_and_the_server_goes_on():
    with Server() as server:
        server.send("no json")
        assert json.loads(server.process.stdout.readline())["error"]["code"] == -32700
        server.send("[1]")
        assert json.loads(server.process.stdout.readline())["error"]["code"] == -32700
        assert server.ask("resources/list")["error"]["code"] == -32601
        for wrong in ({"run": "--socket=/x"}, {"run": 7}, {"other": "x"}):
            assert server.ask("tools/call", name="why", arguments=wrong)["error"]["code"] == -32602
        assert server.ask("tools/call", name="run_logs", arguments={"rank": True})["error"]["code"] == -32602
        assert server.ask("ping")["result"] == {}


def test_with_control_an_assistant_ends_a_run(home):
    name = run([DDPRUN, "--detach", "sleep", "1000"]).stdout.strip()
    with Server("--control") as server:
        tools = {tool["name"]: tool["annotations"] for tool in server.ask("tools/list")["result"]["tools"]}
        assert tools["stop_run"]["destructiveHint"]
        assert server.ask("tools/call", name="drain_node", arguments={})["error"]["message"] == "drain_node needs node"
        assert server.call("stop_run", run=name)[0] is False
        wait_for("the run's end", lambda: json.loads(server.call("list_runs")[1])["runs"][0]["state"] == "ended")
