# SPDX-License-Identifier: Apache-2.0
"""The Python package ddprun against an agent of the test's own."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading

import pytest
from conftest import DDPRUN, PYTHON, clean_environment, run

sys.path.insert(0, PYTHON)
from ddprun import Rounds, on_notice, progress, record  # noqa: E402

DEADLINE = 10


class Agent:
    def __init__(self, folder):
        self.path = str(folder / "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(DEADLINE)

    def receive(self):
        return self.socket.recv(1024).decode()

    def send(self, text, to=".rounds"):
        self.socket.sendto(text.encode(), self.path + to)

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
    progress(3, loss=0.5, gpu_memory=1 << 20)
    assert agent.receive() == "STEP=3\nLOSS=0.5\nGPU_MEMORY=1048576\n"
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


NOTICED = """
import queue, sys, ddprun
calls = queue.Queue()

def fails(seconds):
    calls.put(("fails", seconds))
    raise ValueError("a callback's own error")

print(ddprun.on_notice(fails), ddprun.on_notice(lambda seconds: calls.put(("second", seconds))), flush=True)
for line in sys.stdin:
    print(*calls.get(timeout=10), flush=True)
"""


def hears(agent, *names):
    """What the package answers in so many lines."""
    for _ in names:
        agent.process.stdin.write("next\n")
    agent.process.stdin.flush()
    return [agent.process.stdout.readline().split() for _ in names]


@pytest.fixture
def noticed(agent):
    """A program with two callbacks, and an agent that has heard of both."""
    env = clean_environment(PYTHONPATH=PYTHON, DDPRUN_NOTIFY_SOCKET=agent.path)
    pipes = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
    with subprocess.Popen([sys.executable, "-c", NOTICED], env=env, text=True, **pipes) as agent.process:
        assert agent.receive() == agent.receive() == "NOTICES=1\n"
        assert agent.process.stdout.readline() == "True True\n"
        yield agent
        agent.process.kill()


def test_without_an_agent_no_notice_is_heard(monkeypatch):
    monkeypatch.delenv("DDPRUN_NOTIFY_SOCKET", raising=False)
    assert not on_notice(print)
    monkeypatch.setenv("DDPRUN_NOTIFY_SOCKET", "/not/there")
    assert not on_notice(print)


def test_each_callback_hears_each_notice_once(noticed):
    noticed.send("NOTICE=1\nSECONDS=118.25\nHOST=b\nNODE_RANK=1\nREASON=SIGUSR1\n", ".notices")
    assert hears(noticed, "fails", "second") == [["fails", "118.25"], ["second", "118.25"]]
    for text in ("nonsense", "NOTICE=x\nSECONDS=1\n", "NOTICE=2\n", "NOTICE=1\nSECONDS=90\n", "NOTICE=2\nSECONDS=7\nNEW=1\n"):
        noticed.send(text, ".notices")
    assert hears(noticed, "fails", "second") == [["fails", "7.0"], ["second", "7.0"]]
    noticed.process.stdin.close()
    assert noticed.process.stderr.read().count("ValueError: a callback's own error") == 2


def test_a_second_process_of_a_worker_leaves_the_notices_to_the_first(noticed):
    env = clean_environment(PYTHONPATH=PYTHON, DDPRUN_NOTIFY_SOCKET=noticed.path)
    program = [sys.executable, "-c", "import ddprun; print(ddprun.on_notice(print))"]
    assert run(program, env=env).stdout == "False\n"
    noticed.send("NOTICE=1\nSECONDS=5\n", ".notices")
    assert hears(noticed, "fails") == [["fails", "5.0"]]
    noticed.process.kill()
    noticed.process.wait()
    assert run(program, env=env).stdout == "True\n"  # nobody reads there any more


BOTH = """
import queue, ddprun
calls = queue.Queue()
rounds = ddprun.Rounds(on_broken=lambda: calls.put("broken"))
print(rounds.keep(), ddprun.on_notice(lambda seconds: calls.put(seconds)), flush=True)
print(calls.get(timeout=10), calls.get(timeout=10), flush=True)
"""


def test_rounds_and_notices_have_a_socket_each(agent):
    env = clean_environment(PYTHONPATH=PYTHON, DDPRUN_NOTIFY_SOCKET=agent.path, DDPRUN_ROUND="7")
    with subprocess.Popen([sys.executable, "-c", BOTH], env=env, text=True, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == "True True\n"
        assert [agent.receive(), agent.receive()] == ["KEEP=1\n", "NOTICES=1\n"]
        agent.send("NOTICE=1\nSECONDS=5\n", ".notices")
        agent.send("BROKEN=7\n")
        assert sorted(process.stdout.readline().split()) == ["5.0", "broken"]


def failing_main(text="no such layer"):
    raise KeyError(text)


def recorded(decorator, path, monkeypatch, *arguments):
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))
    with pytest.raises(KeyError):
        decorator(failing_main)(*arguments)
    return json.loads(path.read_text())


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="compares with torch's")
def test_a_failure_is_recorded_as_torch_does(tmp_path, monkeypatch):
    from torch.distributed.elastic.multiprocessing.errors import record as torch_record

    own = recorded(record, tmp_path / "own", monkeypatch)
    theirs = recorded(torch_record, tmp_path / "theirs", monkeypatch)
    assert own["message"]["message"] == theirs["message"]["message"] == "KeyError: 'no such layer'"
    assert own["message"].keys() == theirs["message"].keys()
    extras = [one["message"]["extraInfo"] for one in (own, theirs)]
    assert extras[0].keys() == extras[1].keys() == {"py_callstack", "timestamp"}
    assert abs(int(extras[0]["timestamp"]) - int(extras[1]["timestamp"])) < 60
    ends = [extra["py_callstack"].splitlines()[-3:] for extra in extras]
    assert ends[0] == ends[1]


def test_a_record_takes_any_text_and_no_file_is_needed(tmp_path, monkeypatch):
    odd = recorded(record, tmp_path / "odd", monkeypatch, "\udcff" + "x" * 10**6)
    assert odd["message"]["message"].startswith("KeyError: '") and (tmp_path / "odd").stat().st_size < 10**6
    assert [path.name for path in tmp_path.iterdir()] == ["odd"]
    assert record(lambda a, b=1: a + b)(2, b=3) == 5
    for path in ("", "/not/there/record"):
        monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", path)
        with pytest.raises(KeyError):
            record(failing_main)()


def test_the_verdict_has_what_was_recorded(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import ddprun\n\n@ddprun.record\ndef main():\n    raise ValueError('bad batch')\n\nmain()\n")
    ended = run([DDPRUN, "--standalone", "--verdict", "json", program], env=clean_environment(PYTHONPATH=PYTHON))
    assert ended.returncode == 1
    verdict = json.loads(ended.stderr.splitlines()[-1])
    assert verdict["cause"]["message"] == "ValueError: bad batch", verdict
    assert "in main" in verdict["cause"]["traceback"]
