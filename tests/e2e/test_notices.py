# SPDX-License-Identifier: Apache-2.0
"""A notice that a machine will be taken away: it reaches one node, and every rank of the run hears of it."""

import importlib.util
import json
import re
import signal

import pytest
from conftest import DDPRUN, PYTHON, REPO, clean_environment, finish_all, run, start, wait_for

# Writes each notice that it hears to a file of its own; ends well after the first, unless it is told to fail or to stay.
WORKER = """
import os, sys, threading, time
import ddprun

folder, what = sys.argv[1:]
round, rank = os.environ["DDPRUN_ROUND"], os.environ["RANK"]
noticed = threading.Event()

def on_notice(seconds):
    with open(f"{folder}/heard.{round}.{rank}", "a") as file:
        file.write(f"{seconds}\\n")
    noticed.set()

assert ddprun.on_notice(on_notice)
open(f"{folder}/ready.{round}.{rank}", "w").close()
assert noticed.wait(60), "no notice came"
if what == "fail" and round == "1":
    sys.exit(9)
while what == "stay" and not os.path.exists(f"{folder}/done"):
    time.sleep(0.02)
"""


@pytest.fixture
def worker(tmp_path):
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    return script


def environment(**more):
    return clean_environment(PYTHONPATH=PYTHON, **more)


def launch(flags, *program):
    return start([DDPRUN, *flags, *program], env=environment())


def nodes(port, count, flags, *program):
    common = ["--nnodes", count, "--master-addr", "127.0.0.1", "--master-port", port]
    return [launch([*common, "--node-rank", rank, *flags], *program) for rank in range(count)]


def heard(folder, rank, round=1):
    path = folder / f"heard.{round}.{rank}"
    return [float(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_until_ready(folder, ranks, round=1):
    for rank in range(ranks):
        wait_for(f"rank {rank} in round {round}", (folder / f"ready.{round}.{rank}").exists)


def test_a_signal_reaches_all_workers_of_a_node(tmp_path, worker):
    log = tmp_path / "events"
    flags = ["--notice-on-signal", "USR1", "--notice-grace", 120, "--event-log", log]
    node = launch([*flags, "--standalone", "--nproc-per-node", 2], worker, tmp_path, "end")
    wait_until_ready(tmp_path, 2)
    node.send_signal(signal.SIGUSR1)
    [(code, _, err)] = finish_all([node])
    assert code == 0, err
    assert all(len(heard(tmp_path, rank)) == 1 and 110 < heard(tmp_path, rank)[0] <= 120 for rank in range(2))
    assert re.search(r"^ddprun: node \S+ \(node rank 0\) will be taken away in 120 s \(SIGUSR1\); the workers are told$", err, re.M)
    events = [json.loads(line) for line in log.read_text().splitlines()]
    [notice] = [event for event in events if event["event"] == "node.notice"]
    assert notice["seconds"] in (119, 120) and "SIGUSR1" in notice["reason"]


def test_a_file_that_appears_is_a_notice_and_may_say_the_time(tmp_path, worker):
    path = tmp_path / "not" / "there" / "yet"
    node = launch(["--standalone", "--notice-on-file", path], worker, tmp_path, "end")
    wait_until_ready(tmp_path, 1)
    path.parent.mkdir(parents=True)
    path.write_text("90\n")
    [(code, _, err)] = finish_all([node])
    assert code == 0, err
    assert f"in 90 s (the file {path})" in err and len(heard(tmp_path, 0)) == 1 and 80 < heard(tmp_path, 0)[0] <= 90


def test_an_empty_file_or_another_text_leaves_the_time_to_the_flag(tmp_path, worker):
    path = tmp_path / "notice"
    path.write_text('{"action": "terminate"}')
    node = launch(["--standalone", "--notice-on-file", path, "--notice-grace", "1m"], worker, tmp_path, "end")
    [(code, _, err)] = finish_all([node])
    assert code == 0 and "taken away in 60 s" in err, err


def test_a_path_that_cannot_be_asked_for_is_named_and_hurts_nothing(tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    ended = run([DDPRUN, "--standalone", "--notice-on-file", loop, "sh", "-c", "sleep 0.2"])
    assert ended.returncode == 0, ended.stderr
    assert f"cannot look for {loop}: Too many levels of symbolic links" in ended.stderr


def test_the_ranks_of_all_nodes_hear_of_one_nodes_notice_once(tmp_path, port, worker):
    both = nodes(port, 2, ["--notice-on-signal", "USR1", "--notice-grace", 50], worker, tmp_path, "stay")
    wait_until_ready(tmp_path, 2)
    both[1].send_signal(signal.SIGUSR1)
    for rank in range(2):
        wait_for(f"the notice at rank {rank}", lambda rank=rank: heard(tmp_path, rank))
    both[0].send_signal(signal.SIGUSR1)  # the scheduler tells each node: it is the same notice
    both[1].send_signal(signal.SIGUSR1)
    status = json.loads(run([DDPRUN, "status", "--rdzv-endpoint", f"127.0.0.1:{port}", "--json"]).stdout)["runs"][0]
    assert status["preemption"]["node_rank"] == 1 and 0 < status["preemption"]["remaining_ms"] <= 50_000
    assert "(node rank 1) will be taken away in" in run([DDPRUN, "status", "--rdzv-endpoint", f"127.0.0.1:{port}"]).stdout
    (tmp_path / "done").touch()
    results = finish_all(both)
    assert [code for code, _, _ in results] == [0, 0], results
    assert all("(node rank 1) will be taken away in 50 s" in err for _, _, err in results), results
    assert [len(heard(tmp_path, rank)) for rank in range(2)] == [1, 1]


def test_an_earlier_deadline_is_another_notice(tmp_path, port, worker):
    path = tmp_path / "notice"
    flags = ["--standalone", "--notice-on-signal", "USR1", "--notice-grace", 600, "--notice-on-file", path]
    node = launch(flags, worker, tmp_path, "stay")
    wait_until_ready(tmp_path, 1)
    node.send_signal(signal.SIGUSR1)
    wait_for("the notice", lambda: heard(tmp_path, 0))
    path.write_text("120")
    wait_for("the earlier one", lambda: len(heard(tmp_path, 0)) == 2)
    (tmp_path / "done").touch()
    [(code, _, err)] = finish_all([node])
    assert code == 0 and heard(tmp_path, 0)[1] <= 120, err


def test_a_round_after_the_notice_hears_it_with_the_time_left(tmp_path, port, worker):
    flags = ["--notice-on-signal", "USR1", "--notice-grace", 100, "--max-restarts", 1]
    both = nodes(port, 2, flags, worker, tmp_path, "fail")
    wait_until_ready(tmp_path, 2)
    both[1].send_signal(signal.SIGUSR1)
    results = finish_all(both)
    assert [code for code, _, _ in results] == [0, 0], results
    first = max(time for rank in range(2) for time in heard(tmp_path, rank))
    second = [heard(tmp_path, rank, round=2) for rank in range(2)]
    assert all(len(times) == 1 and 0 < times[0] < first for times in second), (first, second)


def test_a_notice_while_no_round_runs_is_told_to_the_first_one(tmp_path, port, worker):
    common = ["--nnodes", 2, "--master-addr", "127.0.0.1", "--master-port", port, "--notice-on-signal", "USR1"]
    a = launch([*common, "--node-rank", 0, "--notice-grace", 200], worker, tmp_path, "end")
    status = [DDPRUN, "status", "--rdzv-endpoint", f"127.0.0.1:{port}"]
    wait_for("node 0", lambda: "forming" in run(status).stdout)
    a.send_signal(signal.SIGUSR1)
    wait_for("the notice", lambda: "will be taken away" in run(status).stdout)
    b = launch([*common, "--node-rank", 1], worker, tmp_path, "end")
    results = finish_all([a, b])
    assert [code for code, _, _ in results] == [0, 0], results
    assert "no worker runs now, those that start are told" in results[0][2]
    assert [len(heard(tmp_path, rank)) for rank in range(2)] == [1, 1]


# Ranks 0 and 2 handle USR2, with a handler that comes late; rank 1 does not: the signal would kill it.
SIGNALED = """
[ $RANK = 1 ] || { sleep 0.$((RANK + 1)); trap "touch $0/signaled.$RANK" USR2; }
touch $0/ready.1.$RANK
while [ ! -e $0/signaled.0 ] || [ ! -e $0/signaled.2 ]; do sleep 0.02; done
"""


def test_a_signal_of_choice_goes_to_the_workers_that_handle_it(tmp_path):
    flags = ["--notice-on-signal", "USR1", "--notice-worker-signal", "USR2"]
    node = launch([*flags, "--standalone", "--nproc-per-node", 3], "sh", "-c", SIGNALED, tmp_path)
    wait_for("rank 1", (tmp_path / "ready.1.1").exists)
    node.send_signal(signal.SIGUSR1)
    [(code, _, err)] = finish_all([node])
    # Rank 1 may run before the agent has started all.
    told = "the workers that handle SIGUSR2 get it" in err or "no worker runs now, those that start are told" in err
    assert code == 0 and told, err


def test_if_no_worker_listens_the_console_says_so(tmp_path):
    program = ["sh", "-c", "echo up; while [ ! -e $0/done ]; do sleep 0.02; done", tmp_path]
    node = launch(["--notice-on-signal", "TERM", "--standalone"], *program)
    assert "up" in node.stdout.readline()  # through ddprun: it knows the worker from here on, a moment after the worker runs
    node.send_signal(signal.SIGTERM)  # as Kubernetes gives notice: it ends nothing then
    assert "no worker listens yet: ddprun.on_notice()" in node.stderr.readline()
    (tmp_path / "done").touch()
    assert [code for code, _, _ in finish_all([node])] == [0]


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the example needs torch")
def test_the_example_saves_on_all_ranks_and_goes_on_from_there(tmp_path, port):
    example = REPO / "worker" / "python" / "examples" / "save_on_notice.py"
    checkpoint = tmp_path / "checkpoint"
    flags = ["--notice-on-signal", "USR1", "--notice-grace", 60]
    both = nodes(port, 2, flags, example, checkpoint, 10**9)
    status = [DDPRUN, "status", "--rdzv-endpoint", f"127.0.0.1:{port}"]
    wait_for("a step", lambda: re.search(r"step \d+", run(status).stdout), timeout=120)
    both[1].send_signal(signal.SIGUSR1)
    results = finish_all(both, timeout=60)
    assert [code for code, _, _ in results] == [0, 0], results
    out = results[0][1] + results[1][1]
    step = int(re.search(r"saved step (\d+) of 1000000000", out).group(1))
    assert all(re.search(rf"rank {rank}: (60|59|58) s left, saving", out) for rank in range(2)), out
    [(code, out, err)] = finish_all([launch(["--standalone"], example, checkpoint, step + 5)])
    assert code == 0 and f"saved step {step + 5} of {step + 5}" in out, err
