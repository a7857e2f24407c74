# SPDX-License-Identifier: Apache-2.0
"""The screen of `ddpctl top`, on a terminal of the test's own."""

import re
import signal
import time

import pytest

from conftest import BIN, DDPRUN, finish_all, free_port, start, wait_for
from terminal_screen import Screen
from test_hangs import TELL, status

DDPCTL = BIN / "ddpctl"
LEAVE = b"\x1b[?1049l"  # of xterm: the screen of before

WORKER = TELL + """
import sys, time
def wait_for_more(step):
    time.sleep(0.05)
rank = int(os.environ["RANK"])
print(f"hello from rank {rank}", flush=True)
for step in range(1, 10**9):
    progress(STEP=step, EPOCH=2, RATE=50 + rank, UNIT="images", LOSS=1 / step, SECTION="forward", GPU_MEMORY=3 << 30)
    wait_for_more(step)
"""


@pytest.fixture
def a_run(tmp_path):
    """A run of two nodes of one rank each, as (port, its processes)."""
    port = free_port()
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    service = start([BIN / "ddprun-rendezvous", "--host", "127.0.0.1", "--port", port])
    nodes = [
        start(
            [DDPRUN, "--nnodes", "1:2", "--node-rank", rank, "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "job"]
            + ["--nproc-per-node", 1, "--last-call", 30, script]
        )
        for rank in range(2)
    ]
    wait_for("both ranks", lambda: sum(len(node["workers"]) for run in status(port) for node in run["nodes"]) == 2, 60)
    yield port, service, nodes
    for process in (service, *nodes):
        process.kill()


def top(port, *words, **options):
    return Screen([DDPCTL, "top", *words, "--rdzv-endpoint", f"127.0.0.1:{port}"], **options)


def test_a_run_is_shown_and_asked_and_a_node_drained(a_run):
    port, _, nodes = a_run
    screen = top(port, "job")
    screen.wait_for(r"^run job: running, round \d+, world size 2")
    screen.wait_for(r"^step \d+  epoch 2  rate 101 images/s  \S+  loss 0\.\d+  \S+")
    screen.wait_for(r"^0 +0 +\S+ +running +\d+ +50 ")
    screen.wait_for(r"^1 +  1 +\S+ +running +\d+ +51 +\S+ +\d[\d.]*M +3.0G +forward")
    screen.press("/rank 1")
    screen.wait_for(r"^/rank 1_")
    screen.wait_for(r"DOING\n1 +  1 ")
    screen.press("\r")
    screen.wait_for(r"only: rank 1")
    screen.press("l")
    screen.wait_for(r"^log of rank 1")
    screen.wait_for(r"hello from rank 1$")
    screen.press("\x1b")
    screen.wait_for(r"DOING\n1 +  1 ")
    screen.press("s")
    screen.wait_for(r"^stacks of rank 1 ")
    screen.wait_for(r"wait_for_more .*worker.py")
    screen.press("q")
    screen.wait_for(r"DOING\n1 +  1 ")
    screen.press("\x1b")
    screen.wait_for(r"DOING\n0 +0 ")
    screen.press("ooo")
    screen.wait_for(r"order: rate")
    screen.wait_for(r"DOING\n0 +  0 .*\n1 +  1 ")
    screen.resize(90, 12)
    screen.wait_for(r"DOING\n0 +  0 .*\n1 +  1 ")
    assert len(screen.text().rstrip().splitlines()) == 12 and "EVENTS" not in screen.text()
    screen.resize(120, 30)
    screen.wait_for(r"^EVENTS")
    screen.press("Gd")
    screen.wait_for(r"drain node \S+ \(node rank 1\) of run job\? \(y/n\)")
    screen.press("n")
    screen.wait_for(r"d drain")
    screen.press("dy")
    screen.wait_for(r"world size 1")
    screen.wait_for(r"EVENTS\n(.*\n)*.*\d\d:\d\d:\d\d\.\d  round")
    assert nodes[1].wait(30) == 0
    screen.press("q")
    assert screen.end() == 0 and screen.raw.rstrip().endswith(LEAVE) or LEAVE in screen.raw[-60:]


def test_a_service_that_does_not_answer_holds_up_no_key(a_run):
    port, service, _ = a_run
    screen = top(port, "--timeout", "2")
    screen.wait_for(r"running")
    service.send_signal(signal.SIGSTOP)
    try:
        screen.wait_for(r"did not answer|no answer|within")
        waited = []
        for key in "jjk/":
            begin = time.monotonic()
            before = screen.text()
            screen.press(key)
            while screen.text() == before and time.monotonic() - begin < 1:
                time.sleep(0.001)
            waited.append(time.monotonic() - begin)
        screen.wait_for(r"^/_")
    finally:
        service.send_signal(signal.SIGCONT)
    assert min(waited) < 1, waited  # of 2 s
    screen.press("\x1b")
    service.kill()
    screen.wait_for(r"^.*127\.0\.0\.1:\d+.*$")
    screen.wait_for(r"nothing listens|refused|not reached|connect")
    screen.press("q")
    assert screen.end() == 0


@pytest.mark.parametrize("term", ["screen", "linux", "vt100"])
def test_other_terminals(a_run, term):
    port, _, _ = a_run
    screen = top(port, term=term, LC_ALL="C" if term == "vt100" else "C.UTF-8")
    screen.wait_for(r"^1 +  1 +\S+ +running")
    if term == "vt100":
        assert re.search(r"loss \S+  [_.:=+*#-]+", screen.text()) and screen.text().isascii()
    screen.process.send_signal(signal.SIGTERM if term == "linux" else signal.SIGINT)
    assert screen.end() == 0


@pytest.mark.parametrize(("term", "why"), [("dumb", "cannot move its cursor"), ("of-nobody", "terminfo describes no")])
def test_a_terminal_without_a_screen_gets_lines(a_run, term, why):
    port, _, _ = a_run
    screen = top(port, term=term)
    screen.wait_for(why)
    screen.wait_for(r"\d\d:\d\d:\d\d run job: running, .*2 running")
    screen.process.send_signal(signal.SIGTERM)
    assert screen.end() == 0


def test_status_watch_of_ddprun_is_the_same_screen(a_run):
    port, _, _ = a_run
    screen = Screen([DDPRUN, "status", "--watch", "--rdzv-endpoint", f"127.0.0.1:{port}"])
    screen.wait_for(r"^1 +  1 +\S+ +running")
    screen.press("q")
    assert screen.end() == 0
    lines = start([DDPCTL, "status", "--watch", "--rdzv-endpoint", f"127.0.0.1:{port}"])
    assert "run job: running" in lines.stdout.readline()
    lines.terminate()
    assert finish_all([lines])[0][0] == 0
