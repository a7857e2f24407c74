# SPDX-License-Identifier: Apache-2.0
"""Progress of Python programs and of `train`, and hangs as a person meets them."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from conftest import BIN, DDPRUN, REPO, TRAIN, agent_of, clean_environment, finish_all, run, start, wait_for
from test_data import make_image_folder

sys.path.insert(0, str(REPO / "tests" / "testing"))
from faults import Faults  # noqa: E402

DEADLINE_S = 120

# As launcher/README.md has it.
TELL = """
import os, socket
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.setblocking(False)

def progress(**words):
    if path := os.environ.get("DDPRUN_NOTIFY_SOCKET"):
        try:
            notify.sendto("\\n".join(f"{k}={v}" for k, v in words.items()).encode(), path)
        except OSError:
            pass
"""

LOOP = TELL + """
import signal
def forward_for_ever():
    while True:
        pass
progress(STEP=12, SECTION="data")
print("told", flush=True)
forward_for_ever()
"""

STEPS = TELL + """
import time
for step in range(10**9):
    progress(STEP=step, EPOCH=2, RATE=155.25, UNIT="images", SECTION="data")
    time.sleep(0.02)
"""

WAITING = TELL + """
import threading
progress(STEP=3, SECTION="work")
if os.environ["RANK"] == "1":
    progress(WAITS="", LAST="56 all_reduce 0")
else:
    progress(WAITS="57 all_reduce 4194304 float32 0", LAST="56 all_reduce 0")
threading.Event().wait()
"""


def status(port):
    answer = run([BIN / "ddpctl", "status", "--json", "--rdzv-endpoint", f"127.0.0.1:{port}"])
    return json.loads(answer.stdout)["runs"] if answer.returncode == 0 else []


STUBBORN = TELL + """
import signal, sys, time
progress(STEP=1)
if os.environ["RANK"] == "0":
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    sys.exit(3)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ignores SIGTERM", flush=True)
time.sleep(60)
"""


def cpu_seconds(pid):
    """0 if it has ended."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_the_agent_sleeps_while_a_worker_takes_its_time_to_end(tmp_path):
    program = tmp_path / "stubborn.py"
    program.write_text(STUBBORN)
    node = start([DDPRUN, "--standalone", "--nproc-per-node", 2, "--term-timeout", 3, program, tmp_path / "go"])
    assert "ignores SIGTERM" in node.stdout.readline()
    agent = agent_of(node.pid)
    before = cpu_seconds(agent)
    (tmp_path / "go").touch()
    used = 0
    while node.poll() is None:
        used = max(used, cpu_seconds(agent) - before)
        time.sleep(0.02)
    assert "are killed" in node.communicate()[1]
    assert used < 0.25, f"the agent used {used} s of CPU time in the 3 s in which it only waited"


def test_a_python_loop_is_named_with_its_stack(tmp_path):
    program = tmp_path / "loop.py"
    program.write_text(LOOP)
    done = run([DDPRUN, "--hang-timeout", 1, "--verdict-file", tmp_path / "verdict", program])
    assert done.returncode == 124, done.stderr
    cause = json.loads((tmp_path / "verdict").read_text())["cause"]
    assert cause["kind"] == "worker_hung"
    assert (cause["hang"]["step"], cause["hang"]["section"]) == (12, "data")
    stack = cause["hang"]["stack"]
    # Python's frames come first, those of the main thread before others, then the native ones.
    assert re.fullmatch(r"  Python 3\.\d+ thread \d+ \(.+\), holds the GIL", stack[0]), stack
    loop = 1 + LOOP.splitlines().index("    while True:")
    assert re.fullmatch(rf"    #0 forward_for_ever at {re.escape(str(program))}:({loop}|{loop + 1})", stack[1]), stack
    assert stack[2] == f"    #1 <module> at {program}:{len(LOOP.splitlines())}", stack
    assert re.match(r"  thread \d+ ", stack[3]) and "    #0 " in stack[4], stack


AFTERWARDS = TELL + """
import threading
progress(STEP=12, SECTION="train")
progress(WATCH=0)
threading.Event().wait(2.5)                        # an export, of which nothing is reported
progress(STEP=12, SECTION="evaluation")
threading.Event().wait()
"""


def test_what_comes_after_the_training_may_be_silent(tmp_path):
    program = tmp_path / "afterwards.py"
    program.write_text(AFTERWARDS)
    done = run([DDPRUN, "--hang-timeout", 1, "--init-timeout", 2, "--verdict-file", tmp_path / "verdict", program])
    assert done.returncode == 124, done.stderr
    cause = json.loads((tmp_path / "verdict").read_text())["cause"]
    assert cause["hang"]["section"] == "evaluation", "it is watched again from its next report on"


CONTROLS = TELL + """
import threading
progress(STEP=3, UNIT="\\x1b[2Jimages", SECTION="\\x1b[1Alo\\x07ad", WAITS="57 all\\x1b[2J_reduce 4 float32 \\x070")
threading.Event().wait()
"""


def test_control_characters_that_a_worker_reports_reach_no_terminal(tmp_path):
    """The agent that hosts the service has no wire between the two, which would clean them."""
    program = tmp_path / "controls.py"
    program.write_text(CONTROLS)
    done = run([DDPRUN, "--hang-timeout", 1, "--verdict-file", tmp_path / "verdict", program])
    assert done.returncode == 124, done.stderr
    assert "lo?ad" in done.stderr and "all_reduce 57" in done.stderr, done.stderr
    assert "\x1b" not in done.stderr and "\x07" not in done.stderr, done.stderr
    assert json.loads((tmp_path / "verdict").read_text())["cause"]["hang"]["section"] == "lo?ad"


NESTED = """
import ctypes, sys, threading, time

class Trainer:
    def forward(self):
        def inner(depth):
            return inner(depth - 1) if depth else wait()
        inner(
            1)

def wait():
    if sys.argv[1] == "holding the GIL":
        ctypes.PyDLL(None).sleep(300)
    time.sleep(300)

def other():
    event.wait()

event = threading.Event()
threading.Thread(target=other, daemon=True).start()
[Trainer().forward() for _ in range(1)]
"""


def line_of(text):
    (line,) = [number for number, line in enumerate(NESTED.splitlines(), 1) if line.strip() == text]
    return line


def interpreters():
    """The tests' own and what else a machine with several has."""
    found = {}
    for program in [sys.executable, *pathlib.Path.home().glob(".pyenv/versions/3.*/bin/python3")]:
        asked = run([program, "-c", "import sys; print(sys.implementation.name, *sys.version_info[:2])"])
        name, major, minor = (asked.stdout.split() or ["", 0, 0])[:3]
        if name == "cpython" and 9 <= int(minor) <= 15:
            found.setdefault(f"{major}.{minor}", program)
    return found


def python_stacks(process, is_it):
    """The lines of its Python threads as soon as they are what the test waits for."""

    def ask():
        lines = run([BIN / "ddprun-stacks", process.pid, ""]).stdout.splitlines()
        native = [i for i, line in enumerate(lines) if line.startswith("  thread ")]
        assert process.poll() is None, process.communicate()
        assert native, lines
        return lines[1 : native[0]] if is_it(lines) else None

    return wait_for("its Python frames", ask)


@pytest.mark.parametrize("where", ["sleeping", "holding the GIL"])
@pytest.mark.parametrize("version", interpreters())
def test_python_frames_of_a_worker_that_is_stuck_are_read(tmp_path, version, where):
    program = tmp_path / "schl\u00e4fer_\u65e5\u672c.py"
    program.write_text(NESTED)
    process = start([interpreters()[version], program, where])
    try:
        stuck = line_of("ctypes.PyDLL(None).sleep(300)" if where == "holding the GIL" else "time.sleep(300)")
        at = f"at {program}:"
        both = (f"#0 wait {at}{stuck}", "other at")  # not within a call that leads there
        lines = python_stacks(process, lambda lines: all(any(text in line for line in lines) for text in both))
        end = next(i for i in range(1, len(lines)) if "thread" in lines[i].split(" at ")[0])
        gil = ", holds the GIL" if where == "holding the GIL" else ""
        assert re.fullmatch(rf"  Python {version} thread {process.pid} \(.+\){gil}", lines[0]), lines
        main = [re.sub(r"#\d+ ([\w<>]+\.)*", "", line).strip() for line in lines[1:end]]
        inner = line_of("return inner(depth - 1) if depth else wait()")
        call = f"forward {at}{line_of('inner(')}"
        made = f"{at}{line_of('[Trainer().forward() for _ in range(1)]')}"
        frames = [f"wait {at}{stuck}", f"inner {at}{inner}", f"inner {at}{inner}", call]
        frames += [f"<listcomp> {made}", f"<module> {made}"]
        if "<listcomp>" not in "".join(lines):  # from 3.12 on it is no function of its own
            frames.pop(4)
        assert main == frames, lines
        other = lines[end:]
        assert any(f"other {at}{line_of('event.wait()')}" in line for line in other), lines
        assert re.match(rf"  Python {version} thread (?!{process.pid} )\d+ ", other[0]) and "GIL" not in other[0], lines
    finally:
        process.kill()
        finish_all([process])


def test_python_in_a_program_of_another_name_is_found(tmp_path):
    program = tmp_path / "trainer"
    shutil.copy(os.path.realpath(sys.executable), program)
    script = tmp_path / "nested.py"
    script.write_text(NESTED)
    process = start([program, script, "sleeping"], env=clean_environment(PYTHONHOME=sys.base_prefix))
    try:
        lines = python_stacks(process, lambda lines: any("wait at" in line for line in lines))
        assert "(trainer)" in lines[0], lines
    finally:
        process.kill()
        finish_all([process])


def test_a_program_without_python_has_only_native_frames():
    process = start(["sleep", 300])
    try:
        lines = run([BIN / "ddprun-stacks", process.pid, ""]).stdout.splitlines()
        assert lines[0] == f"=== process {process.pid}" and lines[1].startswith(f"  thread {process.pid} "), lines
    finally:
        process.kill()
        finish_all([process])


def test_who_waits_for_whom_is_said_of_any_program_that_tells(tmp_path):
    program = tmp_path / "waiting.py"
    program.write_text(WAITING)
    done = run([DDPRUN, "--nproc-per-node", 4, "--hang-timeout", 2, "--verdict-file", tmp_path / "verdict", program])
    assert done.returncode == 124, done.stderr
    cause = json.loads((tmp_path / "verdict").read_text())["cause"]
    assert cause["rank"] == 1, cause
    sentence = (
        "ranks 0, 2-3 wait in all_reduce 57 (4 MiB float32); rank 1 has not begun it: its last was all_reduce 56"
    )
    assert cause["collectives"]["sentence"] == sentence
    assert f"  collectives: {sentence}\n" in done.stderr, done.stderr


def test_status_shows_what_a_python_program_tells(tmp_path, port):
    program = tmp_path / "steps.py"
    program.write_text(STEPS)
    job = start([DDPRUN, "--rdzv-endpoint", f"127.0.0.1:{port}", "--nproc-per-node", 2, program])
    try:
        told = wait_for(
            "progress", lambda: [r for r in status(port) if r["progress"] and r["progress"]["step"] > 5], DEADLINE_S
        )
        assert told[0]["progress"]["epoch"] == 2
        assert told[0]["progress"]["rate"] == 2 * 155.25
        assert told[0]["progress"]["rate_unit"] == "images"
        assert told[0]["nodes"][0]["progress"]["section"] == "data"
        text = run([BIN / "ddpctl", "status", "--rdzv-endpoint", f"127.0.0.1:{port}"]).stdout
        assert "epoch 2" in text and "images/s" in text and "DOING" in text, text
    finally:
        job.terminate()
        finish_all([job])


@pytest.mark.skipif(not (BIN / "train").exists(), reason="built without LibTorch")
def test_train_tells_of_its_progress(tmp_path, port):
    job = start(
        [DDPRUN, "--rdzv-endpoint", f"127.0.0.1:{port}", "--nproc-per-node", 2, TRAIN, "--dataset", "synthetic"]
        + ["--model", "netresdeep", "--epochs", 50, "--batch-size", 8, "--output-dir", tmp_path / "out"]
    )
    try:
        told = wait_for(
            "progress",
            lambda: [r for r in status(port) if r["progress"] and (r["progress"]["rate"] or 0) > 0],
            DEADLINE_S,
        )
        progress = told[0]["progress"]
        assert progress["step"] > 0 and progress["epoch"] >= 1 and progress["rate_unit"] == "images"
        assert progress["section"] in ("data", "forward", "backward, all_reduce", "all_reduce", "optimizer", "other")
    finally:
        job.terminate()
        finish_all([job])


def with_an_image_that_never_comes(tmp_path, *flags):
    """Three ranks, one of which gets the image on a disk that hangs; (how it ended, the verdict's cause)."""
    make_image_folder(tmp_path / "data", of_each=12)
    faults = Faults(tmp_path)
    faults.set(f"open hang path={tmp_path}/data/train/dog/7.png")
    done = run(
        [DDPRUN, "--nproc-per-node", 3, "--verdict-file", tmp_path / "verdict", *flags, "--dataset", "imagefolder"]
        + ["--data-dir", tmp_path / "data", "--input-size", 32, "--batch-size", 4, "--epochs", 1, "--compress", "bf16"]
        + ["--output-dir", tmp_path / "out"],
        env=clean_environment(**faults.env()),
        timeout=DEADLINE_S,
    )
    return done, json.loads((tmp_path / "verdict").read_text())["cause"]


@pytest.mark.skipif(not (BIN / "train").exists(), reason="built without LibTorch")
def test_an_evaluation_that_takes_longer_than_the_limit_is_no_hang(tmp_path):
    make_image_folder(tmp_path / "data", of_each=8)
    faults = Faults(tmp_path)
    faults.set(f"open delay=250 path={tmp_path}/data/val/")
    done = run(
        [DDPRUN, "--hang-timeout", 2, TRAIN, "--dataset", "imagefolder", "--data-dir", tmp_path / "data", "--input-size", 32]
        + ["--batch-size", 4, "--eval-batch-size", 1, "--loader-threads", 1, "--epochs", 1, "--output-dir", tmp_path / "out"],
        env=clean_environment(**faults.env()),
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out/summary.json").read_text())["evaluation_seconds"] > 2


# One of the others may be a collective further: a broadcast's root does not wait for those that get it.
ONE_HAS_NOT_BEGUN = r"ranks? .+ waits? in \w+ \d+ \(.+ \w+\); .*rank (\d) has not begun it: its last was \w+ \d+.*"


@pytest.mark.skipif(not (BIN / "train").exists(), reason="built without LibTorch")
def test_a_rank_that_hangs_is_named_with_the_collective_that_the_others_wait_in(tmp_path):
    done, cause = with_an_image_that_never_comes(tmp_path, "--hang-timeout", 5, TRAIN)
    assert done.returncode == 124, done.stderr
    assert cause["kind"] == "worker_hung"
    assert cause["hang"]["section"] == "data", cause
    sentence = re.fullmatch(ONE_HAS_NOT_BEGUN, cause["collectives"]["sentence"])
    assert sentence, cause["collectives"]
    assert int(sentence[1]) == cause["rank"]
    waiting = [place for place in cause["collectives"]["places"] if place["waits"]]
    assert sum(last - first + 1 for place in waiting for first, last in place["ranks"]) == 2
    assert f"  collectives: {sentence[0]}\n" in done.stderr


@pytest.mark.skipif(not (BIN / "train").exists(), reason="built without LibTorch")
def test_a_collective_whose_time_is_over_names_the_rank_that_has_not_begun_it(tmp_path):
    done, cause = with_an_image_that_never_comes(tmp_path, TRAIN, "--collective-timeout", 6)
    assert done.returncode == 1, done.stderr
    assert cause["kind"] == "collective_failed"
    sentence = re.fullmatch(ONE_HAS_NOT_BEGUN, cause["collectives"]["sentence"])
    assert sentence, cause["collectives"]
    assert int(sentence[1]) != cause["rank"], "the rank that gave up is one of those that waited"


WHERE = "rank 0 waits in all_reduce 57 (4 MiB float32); rank 1 has not begun it: its last was all_reduce 56"


def test_ranks_that_wait_are_seen_long_before_they_count_as_hung(tmp_path, port):
    program = tmp_path / "waiting.py"
    program.write_text(WAITING)
    service = ["--rdzv-endpoint", f"127.0.0.1:{port}"]
    node = start([DDPRUN, "--nproc-per-node", 2, *service, "--verdict-file", tmp_path / "verdict", program])
    seen = wait_for("the wait", lambda: [one["collectives"] for one in status(port) if one["collectives"]], DEADLINE_S)
    assert seen == [WHERE]
    assert f"\n  collectives: {WHERE}\n" in run([BIN / "ddpctl", "status", *service]).stdout
    both = run([BIN / "ddpctl", "stacks", *service])
    assert both.returncode == 0, both
    assert both.stdout.startswith(f"collectives: {WHERE}\nstacks of rank 0 (local rank 0, pid ")
    assert "stacks of rank 1 (local rank 1, pid " in both.stdout and both.stdout.count("waiting.py") == 2, both.stdout
    one = run([BIN / "ddpctl", "stacks", 1, *service]).stdout
    assert "stacks of rank 1 " in one and "stacks of rank 0 " not in one
    none = run([BIN / "ddpctl", "stacks", 7, *service])
    assert none.returncode == 1 and "rank 7 of run" in none.stderr, none.stderr
    node.send_signal(signal.SIGINT)
    _, errors = node.communicate(timeout=DEADLINE_S)
    assert node.returncode == 130
    assert f"\n  collectives: {WHERE}\n" in errors, errors
    assert json.loads((tmp_path / "verdict").read_text())["cause"]["collectives"]["sentence"] == WHERE


@pytest.mark.nightly
def test_after_a_minute_one_line_says_who_waits_for_whom(tmp_path):
    program = tmp_path / "waiting.py"
    program.write_text(WAITING)
    begin = time.monotonic()
    node = start([DDPRUN, "--standalone", "--nproc-per-node", 2, program])
    assert node.stderr.readline() == f"ddprun: no progress for 60 s: {WHERE}; `ddpctl stacks` prints what each rank does\n"
    assert 59 < time.monotonic() - begin < 75
    assert node.poll() is None, "nothing is killed"
    node.send_signal(signal.SIGINT)
    _, errors = node.communicate(timeout=DEADLINE_S)
    assert f"\n  collectives: {WHERE}\n" in errors, errors


# An interpreter waits for its threads.
KEPT_ALIVE = """
import os, threading, time
if os.environ["RANK"] == "1":
    threading.Thread(target=time.sleep, args=(600,)).start()
"""


@pytest.mark.nightly
def test_a_worker_that_outlives_the_others_is_named_with_what_it_does(tmp_path):
    program = tmp_path / "kept_alive.py"
    program.write_text(KEPT_ALIVE)
    begin = time.monotonic()
    node = start([DDPRUN, "--standalone", "--nproc-per-node", 3, program])
    assert node.stderr.readline() == "ddprun: rank 1 still runs and writes nothing, 60 s after the others of this node have ended with code 0; reading the stacks\n"
    assert 59 < time.monotonic() - begin < 75
    assert node.stderr.readline().startswith("ddprun: stacks of rank 1 (pid ")
    lines = [node.stderr.readline() for _ in range(12)]
    assert any("_shutdown at " in line for line in lines), lines
    assert node.poll() is None, "nothing is killed"
    node.send_signal(signal.SIGINT)
    node.communicate(timeout=DEADLINE_S)
    assert node.returncode == 130


@pytest.mark.nightly
def test_a_node_that_outlives_the_others_is_named(tmp_path, port):
    program = tmp_path / "kept_alive.py"
    program.write_text(KEPT_ALIVE)
    command = [DDPRUN, "--nnodes", 2, "--master-addr", "127.0.0.1", "--master-port", port]
    nodes = [start([*command, "--node-rank", rank, program]) for rank in (0, 1)]
    sentence = "rank 1 still runs, 60 s after the other nodes' ranks have ended with code 0; `ddpctl stacks 1` prints what rank 1 does"
    for node in nodes:
        assert node.stderr.readline() == f"ddprun: {sentence}\n"
    nodes[1].send_signal(signal.SIGINT)
    for node in nodes:
        node.communicate(timeout=DEADLINE_S)
