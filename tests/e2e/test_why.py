# SPDX-License-Identifier: Apache-2.0
"""`ddpctl events` and `ddpctl why`, as users type them: of runs that go on, of past ones, and of a verdict in a file."""

import contextlib
import json
import os
import signal
import subprocess

import pytest
from conftest import BIN, DDPRUN, free_port, run, start, wait_for

DDPCTL = str(BIN / "ddpctl")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user without runs; those that a test leaves are ended."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield tmp_path / "state" / "ddprun" / "runs"
    for one in runs():
        with contextlib.suppress(ProcessLookupError):
            if one["state"] in ("running", "starting"):
                os.kill(one["pid"], signal.SIGTERM)
    wait_for("the runs' ends", lambda: all(one["state"] in ("ended", "lost") for one in runs()))


def ctl(*words):
    return run([DDPCTL, *words])


def told(*words):
    asked = ctl(*words)
    assert asked.returncode == 0, asked.stderr
    return asked.stdout


def runs():
    return json.loads(told("runs", "--json"))["runs"]


def past(*words):
    """The name of a detached run, which has ended, perhaps before it was in the background."""
    run([DDPRUN, "--detach", *words])
    wait_for("the run's end", lambda: runs()[0]["state"] == "ended")
    return runs()[0]["name"]


def why(*words):
    """The object, whose text is what people get."""
    explained = json.loads(told("why", "--json", *words))
    assert told("why", *words) == explained["text"] + "\n"
    return explained


LEAVES = "import os, sys, time; rank = int(os.environ['RANK']); time.sleep(0 if rank == 1 else 1000)\n"
# What rank 1 does: (its lines of Python or flags before it, the kind, what its sentence has, what the next step has).
KINDS = {
    "an error": (LEAVES + "raise ValueError('no such column')", [], "worker_exited", "exited with code 1", "last lines"),
    "a code": (LEAVES + "sys.exit(7)", [], "worker_exited", "exited with code 7", "ddpctl logs --rank 1"),
    "SIGSEGV": (LEAVES + "os.kill(os.getpid(), 11)", [], "worker_signaled", "SIGSEGV", "PYTHONFAULTHANDLER=1"),
    "SIGKILL": (LEAVES + "os.kill(os.getpid(), 9)", [], "worker_signaled", "SIGKILL", "out-of-memory killer"),
    "no space": (LEAVES + "raise OSError(28, 'No space left on device')", [], "worker_exited", "exited with code 1", "df -h"),
    "descriptors": (LEAVES + "raise OSError(24, 'Too many open files')", [], "worker_exited", "exited with code 1", "ulimit -n"),
    "a hang": (
        "import os, socket, time\ns = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "while True:\n  if os.environ['RANK'] == '0' or not os.path.exists('once'):\n"
        "    s.sendto(b'STEP=3', os.environ['DDPRUN_NOTIFY_SOCKET'])\n    if os.environ['RANK'] == '1': open('once', 'w')\n"
        "  time.sleep(0.05)",
        ["--hang-timeout", "1"],
        "worker_hung",
        "made no progress",
        "stacks",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_is_explained_with_rank_cause_and_next_step(home, tmp_path, monkeypatch, kind):
    program, flags, name, sentence, step = KINDS[kind]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(program)
    past("--nproc-per-node", "2", "--term-timeout", "1", *flags, "program.py")
    explained = why()
    assert (explained["state"], explained["cause"]["kind"], explained["cause"]["rank"]) == ("failed", name, 1)
    assert sentence in explained["cause"]["sentence"]
    assert step in explained["next"]
    for part in (f"exit code {explained['exit_code']}", "rank 1", sentence):
        assert part in explained["text"]
    assert step in explained["text"]


def test_a_run_whose_end_is_being_written_is_explained_when_it_is(home):
    run([DDPRUN, "--detach", "sleep", "1000"])
    [record] = [json.loads(path.read_text()) for path in home.glob("*/run.json")]
    os.kill(record["pid"], signal.SIGSTOP)
    try:
        assert ctl("stop").returncode == 0
        wait_for("the end of its service", lambda: not os.path.exists(record["service"].removeprefix("unix:")))
        asked = start([DDPCTL, "why", "--json"])
        with pytest.raises(subprocess.TimeoutExpired):
            asked.wait(1)
    finally:
        os.kill(record["pid"], signal.SIGCONT)
    out, err = asked.communicate(timeout=30)
    assert (asked.returncode, err) == (0, "")
    assert json.loads(out)["cause"]["kind"] == "run_stopped"


def test_what_ends_no_worker_is_explained_too(home):
    missing = run([DDPRUN, "--detach", "no-such-program"])
    assert missing.returncode == 127
    assert "there is no program 'no-such-program'" in why()["text"]
    assert "there is no program 'no-such-program'" in ctl("runs").stdout
    run([DDPRUN, "--detach", "sleep", "1000"])
    assert ctl("stop", "--wait").returncode == 143
    stopped = why()
    assert stopped["cause"]["kind"] == "run_stopped"
    assert "stopped by ddpctl" in stopped["text"]
    assert "on purpose" in stopped["next"]
    alone = ["--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--join-timeout", "1", "true"]
    assert run([DDPRUN, "--detach", *alone]).returncode == 1
    late = why()
    assert late["cause"]["kind"] == "join_timeout"
    assert "--join-timeout" in late["next"]
    assert why(past("true"))["text"].startswith("Run ")


def test_a_killed_recorder_leaves_the_last_event(home):
    started = run([DDPRUN, "--detach", "sleep", "1000"])
    wait_for("the service", lambda: runs()[0]["service"])
    os.kill(runs()[0]["pid"], signal.SIGKILL)
    wait_for("the run's end", lambda: runs()[0]["state"] == "lost")
    lost = why(started.stdout.strip())
    assert lost["state"] == "lost"
    assert "round 1 begins: 1 worker on 1 node" in lost["text"]


def test_restarts_and_what_preceded_are_told(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text("import os, sys; sys.exit(3 + int(os.environ['TORCHELASTIC_RESTART_COUNT']))")
    past("--max-restarts", "2", "program.py")
    explained = why()
    assert (explained["exit_code"], explained["restarts"]) == (5, 2)
    assert [one["event"] for one in explained["before"]] == ["round.broken", "round.broken"]
    assert "It was restarted 2 times." in explained["text"]
    assert "round 1 ends: rank 0" in explained["text"].replace("Round", "round")


def test_events_of_a_live_run_and_of_a_past_one_are_the_same(home, tmp_path):
    go_on = tmp_path / "go-on"
    port = free_port()
    endpoint = ["--rdzv-endpoint", f"127.0.0.1:{port}"]
    script = f"until [ -e {go_on} ]; do sleep 0.05; done; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3"
    started = run([DDPRUN, "--detach", "--max-restarts", "1", *endpoint, "--rdzv-id", "job7", "sh", "-c", script])
    assert started.returncode == 0, started.stderr
    follower = start([DDPCTL, "events", "-f", "--json"])
    first = [json.loads(follower.stdout.readline()) for _ in range(2)]
    assert [one["event"] for one in first] == ["node.joined", "round.started"]
    assert [json.loads(line)["event"] for line in told("events", "--json", *endpoint).splitlines()] == ["node.joined", "round.started"]
    assert "round 1 begins: 1 worker on 1 node" in told("events", "-n", "1")
    live = why()
    assert live["state"] == "running"
    go_on.touch()
    rest, _ = follower.communicate(timeout=60)
    assert follower.returncode == 0
    followed = first + [json.loads(line) for line in rest.splitlines()]
    assert [one["event"] for one in followed][2:] == ["round.broken", "restart", "round.started", "node.succeeded", "run.finished"]
    assert [one["number"] for one in followed] == list(range(1, 8))
    wait_for("the run's end", lambda: runs()[0]["state"] == "ended")
    kept = [json.loads(line) for line in told("events", "--json").splitlines()]
    assert [(one["event"], one["text"]) for one in kept] == [(one["event"], one["text"]) for one in followed]
    assert told("events", "-n", "1").endswith("  the run ends: all workers succeeded\n")


def test_a_verdict_in_a_file_is_explained(tmp_path):
    file = tmp_path / "verdict.json"
    failed = run([DDPRUN, "--rdzv-id", "job7", "--verdict-file", str(file), "sh", "-c", "exit 3"])
    assert failed.returncode == 3
    explained = why("--verdict-file", str(file))
    assert (explained["run"], explained["exit_code"], explained["cause"]["rank"]) == ("job7", 3, 0)
    file.write_text('{"exit_code": ')
    wrong = ctl("why", "--verdict-file", str(file))
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr == f"ddpctl: {file} is no verdict of a run; --verdict-file of ddprun writes one\n"
    missing = ctl("why", "--verdict-file", str(tmp_path / "none"))
    assert missing.returncode == 1
    assert f"cannot read {tmp_path / 'none'}: " in missing.stderr
