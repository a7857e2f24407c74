# SPDX-License-Identifier: Apache-2.0
"""What the workers of all nodes say, asked for from outside: `ddpctl logs`; and waiting for a run's end."""

import os
import signal
import socket
import subprocess
import threading
import time

import pytest

from conftest import BIN, DDPRUN, agent_of, clean_environment, finish_all, free_port, run, start, wait_for

DDPCTL = BIN / "ddpctl"
DEADLINE_S = 60


def service(port):
    return ["--rdzv-endpoint", f"127.0.0.1:{port}"]


def node(port, rank, script, *flags, nodes=2, workers=1):
    return start(
        [DDPRUN, "--nnodes", nodes, "--node-rank", rank, *service(port), "--nproc-per-node", workers]
        + ["--rdzv-id", "job", *flags, "sh", "-c", script]
    )


class Follower:
    """A `ddpctl logs -f` whose lines are read as they come."""

    def __init__(self, port, *flags):
        self.process = start([DDPCTL, "logs", "-f", *flags, *service(port)])
        self.lines = []
        self.changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(line.rstrip("\n"))
                self.changed.notify_all()
        with self.changed:
            self.lines.append(None)
            self.changed.notify_all()

    def wait_for(self, text):
        with self.changed:
            found = self.changed.wait_for(
                lambda: None in self.lines or any(text in line for line in self.lines), DEADLINE_S
            )
            assert found and any(line and text in line for line in self.lines), (text, self.lines)

    def end(self):
        self.process.wait(DEADLINE_S)
        with self.changed:
            assert self.changed.wait_for(lambda: None in self.lines, DEADLINE_S)
        return [line for line in self.lines if line is not None]


def read_until(process, text):
    """Reads a process's stdout up to a line that has the text."""
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"{text} did not come: {process.stderr.read()}")


def test_the_last_lines_of_all_nodes_by_node():
    port = free_port()
    script = "for i in 1 2 3 4; do echo line $i; done; echo oops >&2; echo ready; exec sleep 100"
    nodes = [node(port, rank, script, workers=2) for rank in range(2)]
    for one in nodes:
        read_until(one, "ready")
        read_until(one, "ready")
    host = os.uname().nodename
    shown = run([DDPCTL, "logs", "-n", 2, "--stdout", *service(port)], timeout=60)
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    expected = [f"[{host}:{rank}] {text}" for rank in range(4) for text in ("line 4", "ready")]
    assert sorted(lines) == sorted(expected)
    assert {line[: line.index("]")][-1] for line in lines[:4]} == {"0", "1"}, "node 0 comes first"
    one = run([DDPCTL, "logs", "job", "--rank", "3", "--lines", 2, "--stdout", *service(port)], timeout=60)
    assert one.stdout.splitlines() == [f"[{host}:3] line 4", f"[{host}:3] ready"]
    errors = run([DDPCTL, "logs", "--node", "1", "--stderr", *service(port)], timeout=60)
    assert sorted(errors.stdout.splitlines()) == [f"[{host}:2] oops", f"[{host}:3] oops"]
    nobody = run([DDPCTL, "logs", "--node", "7", *service(port)], timeout=60)
    assert nobody.returncode == 1 and "has no node '7'" in nobody.stderr
    silent = run([DDPCTL, "logs", "--rank", "9", *service(port)], timeout=60)
    assert silent.returncode == 0 and "have said nothing yet" in silent.stderr
    # Waiting for the run's end: the verdict's exit code.
    stopped = run([DDPCTL, "stop", "--wait", *service(port)], timeout=60)
    assert stopped.returncode == 143, stopped.stderr
    assert "run job ended with exit code 143: stopped by ddpctl" in stopped.stdout
    assert [code for code, _, _ in finish_all(nodes)] == [143, 143]


def test_follow_over_a_restart_to_the_end(tmp_path):
    port = free_port()
    script = (
        "echo begin $TORCHELASTIC_RESTART_COUNT; "
        f"while [ ! -e {tmp_path}/go$TORCHELASTIC_RESTART_COUNT ]; do sleep 0.05; done; "
        "echo last $TORCHELASTIC_RESTART_COUNT; "
        "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && [ $RANK = 1 ] && exit 7; exit 0"
    )
    nodes = [node(port, rank, script, "--max-restarts", 1) for rank in range(2)]
    for one in nodes:
        read_until(one, "begin 0")
    follower = Follower(port)
    follower.wait_for("begin 0")
    (tmp_path / "go0").touch()
    follower.wait_for("round 2 begins: 2 workers on 2 nodes")
    follower.wait_for("begin 1")
    (tmp_path / "go1").touch()
    lines = follower.end()
    assert follower.process.returncode == 0
    assert lines[-1] == "ddpctl: run job ended: all workers succeeded"
    host = os.uname().nodename
    for rank in range(2):
        own = [line for line in lines if line.startswith(f"[{host}:{rank}]")]
        texts = [line.split("] ")[1] for line in own]
        # Rank 0 is stopped while it waits or after its last word of round 1.
        assert texts[0] == "begin 0" and texts[-2:] == ["begin 1", "last 1"], lines
    assert any("round 1 ends: rank 1" in line and "exited with code 7" in line for line in lines)
    # A worker's last words come before those about its round's end, and the next round's after.
    last = lines.index(f"[{host}:1] last 0")
    broken = next(i for i, line in enumerate(lines) if "round 1 ends" in line)
    begins = next(i for i, line in enumerate(lines) if "round 2 begins" in line)
    assert last < broken < begins < lines.index(f"[{host}:0] begin 1")
    assert [code for code, _, _ in finish_all(nodes)] == [0, 0]


def test_a_reader_that_does_not_read_holds_nobody_up(tmp_path):
    """8 MB of lines to a `ddpctl logs -f` that is stopped: the run ends as without it, and what is missing is counted."""
    port = free_port()
    total = 100_000
    script = (
        "echo ready; "
        f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; "
        f"seq -f 'line %.0f {'x' * 150}' {total}; echo done; "
        f"while [ ! -e {tmp_path}/end ]; do sleep 0.05; done"
    )
    alone = node(port, 0, script, "--redirects", "3", "--log-dir", tmp_path / "logs", nodes=1)
    log = tmp_path / "logs/job/round_1/rank_0/stdout.log"
    wait_for("the worker's log", lambda: log.exists() and "ready" in log.read_text())
    follower = start([DDPCTL, "logs", "-f", *service(port)])
    read_until(follower, "ready")
    os.kill(follower.pid, signal.SIGSTOP)
    (tmp_path / "go").touch()
    # The worker gets on although nobody reads.
    wait_for("the worker's last line", lambda: log.read_bytes().endswith(b"done\n"))
    os.kill(follower.pid, signal.SIGCONT)
    (tmp_path / "end").touch()
    out, err = follower.communicate(timeout=DEADLINE_S)
    assert follower.returncode == 0, err
    lines = out.splitlines()
    assert lines[-1] == "ddpctl: run job ended: all workers succeeded"
    shown = [line for line in lines if line.startswith("[0] line")]
    left_out = sum(int(line.split()[1]) for line in lines if line.startswith("... "))
    assert left_out > 0 and all(line.endswith("x" * 150) for line in shown)
    done = sum(line == "[0] done" for line in lines)
    assert len(shown) + done + left_out == total + 1
    assert finish_all([alone])[0][0] == 0


def test_bytes_that_are_no_text_come_through():
    port = free_port()
    alone = node(
        port, 0, r"printf '\377\303\050 \033[31mred\n'; echo ready; exec sleep 100", "--local-ranks-filter", "7", nodes=1
    )
    deadline = time.monotonic() + DEADLINE_S
    shown = b""
    while b"ready" not in shown and time.monotonic() < deadline:
        shown = subprocess.run(
            [DDPCTL, "logs", *service(port)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=clean_environment(), timeout=60,
        ).stdout
    assert shown == b"[0] \xff\xc3( \x1b[31mred\n[0] ready\n"
    alone.terminate()
    alone.communicate(timeout=DEADLINE_S)


def test_ctrl_c_ends_it_at_once_and_the_run_goes_on():
    port = free_port()
    alone = node(port, 0, "echo ready; exec sleep 100", nodes=1)
    read_until(alone, "ready")
    for _ in range(20):  # each leaves its place to the next: there are 16
        follower = start([DDPCTL, "logs", "-f", *service(port)])
        read_until(follower, "ready")
        follower.send_signal(signal.SIGINT)
        follower.communicate(timeout=DEADLINE_S)
        assert follower.returncode == -signal.SIGINT
    assert alone.poll() is None
    assert run([DDPCTL, "stop", "--now", "--wait", *service(port)], timeout=60).returncode == 137
    alone.communicate(timeout=DEADLINE_S)


def test_a_node_without_a_connection_is_named(tmp_path):
    """The agent of one node is killed together with its guards: its lease keeps its place, and its lines are missing."""
    port = free_port()
    server = start([BIN / "ddprun-rendezvous", "--port", port])
    assert "listening" in server.stdout.readline()
    nodes = [node(port, rank, "echo ready; exec sleep 100", "--lease", "100") for rank in range(2)]
    for one in nodes:
        read_until(one, "ready")
    agent = agent_of(nodes[1].pid)
    keeper = int(open(f"/proc/{agent}/stat").read().rsplit(")", 1)[1].split()[1])
    # Stopped first: each would take its leave properly when it sees another of them die.
    for sent in (signal.SIGSTOP, signal.SIGKILL):
        for pid in (agent, keeper, nodes[1].pid):
            os.kill(pid, sent)

    def shown():
        return run([DDPCTL, "logs", *service(port)], timeout=60)

    wait_for("word of the lost node", lambda: "no connection" in shown().stdout)
    answer = shown()
    assert "(node rank 1) has no connection to the service now" in answer.stdout and answer.returncode == 0
    assert "ready" in answer.stdout
    nodes[0].terminate()
    nodes[0].communicate(timeout=DEADLINE_S)
    nodes[1].communicate(timeout=DEADLINE_S)
    server.terminate()
    server.communicate(timeout=DEADLINE_S)


class Relay:
    """Carries connections to a port until it is told to cut them all; new ones are carried again."""

    def __init__(self, to):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.to = to
        self.sockets = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                return
            self.sockets += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    @staticmethod
    def _carry(one, other):
        try:
            while data := one.recv(65536):
                other.sendall(data)
        except OSError:
            pass

    def cut(self):
        for one in self.sockets:
            one.shutdown(socket.SHUT_RDWR)
            one.close()
        self.sockets = []


def test_a_connection_that_breaks_and_comes_back(tmp_path):
    """What is said meanwhile comes later; nothing is missing and nothing is there twice."""
    port = free_port()
    server = start([BIN / "ddprun-rendezvous", "--port", port])
    assert "listening" in server.stdout.readline()
    relay = Relay(port)
    script = (
        "echo ready; i=0; "
        f"while [ ! -e {tmp_path}/end ]; do i=$((i+1)); echo line $i; sleep 0.01; done; echo last $i"
    )
    nodes = [node(port, 0, script), node(relay.port, 1, script)]
    for one in nodes:
        read_until(one, "ready")
    follower = Follower(port, "--node", "1")
    follower.wait_for("line")
    relay.cut()
    follower.wait_for("(node rank 1) ended; its lines come once it is back")
    follower.wait_for("(node rank 1) is back")
    (tmp_path / "end").touch()
    lines = follower.end()
    assert lines[-1] == "ddpctl: run job ended: all workers succeeded", lines[-3:]
    said = [line.split("] ")[1] for line in lines if line.startswith("[") and "ready" not in line]
    numbers = [int(text.split()[1]) for text in said if text.startswith("line")]
    assert said[-1].startswith("last "), lines[-5:]
    # From the first on, which is of what was said before.
    assert numbers == list(range(numbers[0], int(said[-1].split()[1]) + 1)), lines
    assert [code for code, _, _ in finish_all(nodes)] == [0, 0]
    server.terminate()
    server.communicate(timeout=DEADLINE_S)
    relay.listener.close()


def test_a_service_that_is_started_again_is_followed_on(tmp_path):
    port = free_port()

    def serve():
        server = start([BIN / "ddprun-rendezvous", "--port", port, "--journal", tmp_path / "journal"])
        assert "listening" in server.stdout.readline()
        return server

    server = serve()
    script = f"echo ready; i=0; while [ ! -e {tmp_path}/end ]; do i=$((i+1)); echo line $i; sleep 0.05; done; echo last"
    nodes = [node(port, rank, script) for rank in (0, 1)]
    for one in nodes:
        read_until(one, "ready")
    follower = Follower(port)
    follower.wait_for("line")
    server.kill()
    server.wait()
    follower.wait_for("; asking again for 60 s")
    server = serve()
    follower.wait_for("connected again")
    (tmp_path / "end").touch()
    lines = follower.end()
    assert follower.process.returncode == 0
    assert lines[-1] == "ddpctl: run job ended: all workers succeeded", lines[-3:]
    assert sum("last" in line for line in lines) == 2, lines[-8:]
    assert [code for code, _, _ in finish_all(nodes)] == [0, 0]
    server.terminate()
    server.communicate(timeout=DEADLINE_S)


def test_where_there_is_no_service_to_ask():
    port = free_port()
    nobody = run([DDPCTL, "logs", *service(port)], timeout=60)
    assert nobody.returncode == 1
    assert "is not reached: connection refused; a run of one node has a service" in nobody.stderr
    assert "--log-dir" in nobody.stderr and len(nobody.stderr.splitlines()) == 1
    unnamed = run([DDPCTL, "logs"], timeout=60)
    assert unnamed.returncode == 2 and "which rendezvous service?" in unnamed.stderr
    stranger = run([DDPCTL, "stop", "--wait", *service(port)], timeout=60)
    assert stranger.returncode == 1 and "is not reached" in stranger.stderr


def test_the_secret_is_needed():
    port = free_port()
    alone = node(port, 0, "echo ready; exec sleep 100", nodes=1)
    read_until(alone, "ready")
    stranger = run(
        [DDPCTL, "logs", *service(port)], timeout=60, env=clean_environment(DDPRUN_TOKEN=os.urandom(32).hex())
    )
    assert stranger.returncode == 1 and "has another token" in stranger.stderr and not stranger.stdout
    alone.terminate()
    alone.communicate(timeout=DEADLINE_S)


def test_stop_waits_no_longer_than_it_may():
    port = free_port()
    alone = node(port, 0, "trap '' TERM; echo ready; while :; do sleep 0.1; done", nodes=1)
    read_until(alone, "ready")
    waited = run([DDPCTL, "stop", "--wait", "--wait-timeout", "0.5", *service(port)], timeout=60)
    assert waited.returncode == 1 and "has not ended within 0.5 s" in waited.stderr
    assert run([DDPCTL, "stop", "--now", "--wait", *service(port)], timeout=60).returncode == 137
    alone.communicate(timeout=DEADLINE_S)


@pytest.mark.parametrize("handler", ["null", "console"])
def test_torchruns_event_log_handler(handler):
    ended = run([DDPRUN, "--standalone", "--event-log-handler", handler, "sh", "-c", "echo out"], timeout=60)
    assert ended.returncode == 0 and ended.stdout == "[0] out\n"
    events = [line for line in ended.stderr.splitlines() if line.startswith("{")]
    if handler == "null":
        assert not events
    else:
        assert any('"torchelastic.worker.status.SUCCEEDED"' in line for line in events), ended.stderr
