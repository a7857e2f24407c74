# SPDX-License-Identifier: Apache-2.0
"""What the ranks' time was spent on, as status, metrics, verdict and summary have it."""

import json
import os
import pathlib
import signal
import sys
import urllib.request

import pytest

from conftest import BIN, DDPRUN, TRAIN, clean_environment, finish_all, free_port, run, start, wait_for, worker_of

DEADLINE_S = 120
CLASSES = ["training", "waiting", "recovery", "checkpoint", "data", "evaluation", "start"]

SLEEP = """
import pathlib, sys, time
time.sleep(2)
if sys.argv[1:] and not (mark := pathlib.Path(sys.argv[1])).exists():
    mark.touch()
    sys.exit(7)
"""

needs_train = pytest.mark.skipif(not (BIN / "train").exists(), reason="built without LibTorch")


def nodes(port, flags, program):
    return [
        start([DDPRUN, "--nnodes", 2, "--node-rank", i, "--rdzv-endpoint", f"127.0.0.1:{port}", *flags[i], *program])
        for i in range(2)
    ]


def files(folder, node):
    return ["--verdict-file", folder / f"verdict{node}", "--event-log", folder / f"events{node}"]


def status(port):
    answer = run([BIN / "ddpctl", "status", "--json", "--rdzv-endpoint", f"127.0.0.1:{port}"])
    return json.loads(answer.stdout)["runs"] if answer.returncode == 0 else []


def step_of(run):
    return (run["progress"] or {}).get("step") or 0


def metrics(ports):
    """Of the nodes, one of which hosts the service."""
    lines = []
    for port in ports:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines += answer.read().decode().splitlines()
    mine = [line for line in lines if line.startswith("ddprun_run_rank_seconds_total{")]
    return {line.split('class="')[1].split('"')[0]: float(line.rsplit(" ", 1)[1]) for line in mine}


def whole(folder, world_size):
    """Rank-seconds from the first round to the run's end, by the events of the service, which a node hosts."""
    lines = [json.loads(line) for i in range(2) for line in (folder / f"events{i}").read_text().splitlines()]
    begun = next(line["monotonic"] for line in lines if line["event"] == "round.started")
    ended = next(line["monotonic"] for line in lines if line["event"] == "run.finished")
    return world_size * (ended - begun)


@needs_train
def test_every_rank_second_is_in_one_class(tmp_path, port):
    scraped_at = [free_port(), free_port()]
    flags = ["--max-restarts", 1, "--nproc-per-node", 1]
    own = [[*flags, *files(tmp_path, i), "--metrics-port", scraped_at[i]] for i in range(2)]
    program = [TRAIN, "--dataset", "synthetic", "--samples", 20000, "--model", "simple-cnn", "--batch-size", 8]
    program += ["--max-steps", 600, "--epochs", 100, "--checkpoint-every", 20, "--output-dir", tmp_path / "out"]
    job = nodes(port, own, program)
    try:
        wait_for("a step", lambda: [r for r in status(port) if step_of(r) > 12], DEADLINE_S)
        before = wait_for("its time", lambda: [r for r in status(port) if r["rank_seconds"]], DEADLINE_S)[0]
        assert list(before["rank_seconds"]) == CLASSES
        assert before["rank_seconds"]["recovery"] == 0 and before["rank_seconds"]["training"] > 0
        os.kill(worker_of(1), signal.SIGKILL)
        after = wait_for(
            "recovery", lambda: [r for r in status(port) if r["rank_seconds"]["recovery"] > 0.2], DEADLINE_S
        )[0]
        assert sum(after["rank_seconds"].values()) > sum(before["rank_seconds"].values())
        scraped = metrics(scraped_at)
        assert sorted(scraped) == sorted(CLASSES) and scraped["recovery"] >= after["rank_seconds"]["recovery"]
        text = run([BIN / "ddpctl", "status", "--rdzv-endpoint", f"127.0.0.1:{port}"]).stdout
        assert "  goodput: " in text and " rank-seconds: training; " in text, text
        ends = finish_all(job, DEADLINE_S)
        assert [end[0] for end in ends] == [0, 0], ends
    finally:
        for one in job:
            one.kill() if one.poll() is None else None
    verdicts = [json.loads((tmp_path / f"verdict{i}").read_text())["rank_seconds"] for i in range(2)]
    assert verdicts[0] == verdicts[1]
    expected = whole(tmp_path, 2)
    assert abs(sum(verdicts[0].values()) - expected) < 0.5 + 0.02 * expected, (verdicts[0], expected)
    assert verdicts[0]["recovery"] >= after["rank_seconds"]["recovery"]
    assert min(verdicts[0][name] for name in ("training", "waiting", "checkpoint", "start")) > 0, verdicts[0]
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert sorted(summary["rank_seconds"]) == sorted(CLASSES)
    assert sum(summary["rank_seconds"].values()) == pytest.approx(summary["total_seconds"], abs=1e-3)


def test_of_a_program_that_reports_nothing_there_is_no_account(tmp_path, port):
    program = tmp_path / "sleep.py"
    program.write_text(SLEEP)
    own = [["--max-restarts", 1, *files(tmp_path, i)] for i in range(2)]
    own[1] += ["--nproc-per-node", 2]
    job = nodes(port, own, [program, tmp_path / "mark"])
    ends = finish_all(job, DEADLINE_S)
    assert [end[0] for end in ends] == [0, 0], ends
    assert "rank_seconds" not in json.loads((tmp_path / "verdict1").read_text())


def test_a_failed_run_of_such_a_program_has_no_goodput(tmp_path):
    done = run([DDPRUN, "--nproc-per-node", 2, "sh", "-c", "sleep 0.5; exit $((3 * RANK))"])
    assert done.returncode == 3
    assert "goodput" not in done.stderr, done.stderr


STEPS = """
import os, socket, sys, time
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.sendto(b"STEP=1", os.environ["DDPRUN_NOTIFY_SOCKET"])
time.sleep(1.2)
sys.exit(3)
"""


def test_a_failed_run_says_what_its_time_was_spent_on(tmp_path):
    program = tmp_path / "steps.py"
    program.write_text(STEPS)
    done = run([DDPRUN, program])
    assert done.returncode == 3
    assert "rank-seconds: training" in done.stderr, done.stderr


# It hangs in its first collective, for which rank 1 is late.
HANGS = """
import os, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 1:
    time.sleep(8)
    os._exit(5)
dist.all_reduce(torch.ones(3))
"""


def test_a_hang_is_no_training(tmp_path):
    pytest.importorskip("torch")
    program = tmp_path / "hangs.py"
    program.write_text(HANGS)
    env = clean_environment(PYTHON_EXEC=sys.executable, OMP_NUM_THREADS="1")
    done = run([DDPRUN, "--nproc-per-node", 2, "--verdict-file", tmp_path / "verdict", program], env=env)
    assert done.returncode == 5, done.stderr
    time = json.loads((tmp_path / "verdict").read_text())["rank_seconds"]
    assert time["waiting"] > 4 and time["start"] > 8, time
    assert time["training"] < 3, time
