# SPDX-License-Identifier: Apache-2.0
"""Metrics for wandb and Trackio, by stand-ins of these packages that write down how they are called."""

import json
import os
import re
import signal
import sys

import pytest
from conftest import PYTHON, clean_environment, run, start, wait_for
from test_python_callbacks import ACCELERATE, LIGHTNING, NET, TRANSFORMERS

# As both have it: init(project, name, ...), log(values, step), finish().
STAND_IN = """
import json, os
def note(*call):
    with open(os.environ["CALLS"], "a") as file:
        file.write(json.dumps(call) + "\\n")
def init(**arguments):
    note("init", __name__, arguments)
    if "REFUSES" in os.environ:
        raise ConnectionError(os.environ["REFUSES"])
def log(values, step=None):
    note("log", step, values)
def finish():
    note("finish")
"""
RECORDS = [{"step": 2, "time": 1.5, "loss/train": 0.5}, {"step": 4, "time": 2.5, "loss/train": 0.25, "accuracy/test": 0.5}]
NAMES = {"time": "time/unix"}  # Trackio has a "time" of its own
LOGGED = [["log", one["step"], {NAMES.get(name, name): one[name] for name in one if name != "step"}] for one in RECORDS]


@pytest.fixture
def calls(tmp_path):
    """A function: the calls so far, and `calls.environment(...)`, in which both packages are there."""
    for name in "wandb", "trackio":
        (tmp_path / "packages" / name).mkdir(parents=True)
        (tmp_path / "packages" / name / "__init__.py").write_text(STAND_IN)
    path = tmp_path / "calls"

    def read():
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def environment(**more):
        env = {"PYTHONPATH": f"{PYTHON}{os.pathsep}{tmp_path}/packages", "CALLS": str(path), "OMP_NUM_THREADS": "1"}
        return {name: value for name, value in clean_environment().items() if not name.startswith("WANDB_")} | env | more

    read.environment = environment
    return read


def written(folder, records=RECORDS):
    folder.mkdir(exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


@pytest.mark.parametrize(
    ("flags", "env", "expected"), [([], {}, "trackio"), ([], {"WANDB_MODE": "offline"}, "wandb"), (["--to", "wandb"], {}, "wandb")]
)
def test_a_training_that_has_ended_is_logged(tmp_path, calls, flags, env, expected):
    done = run([sys.executable, "-m", "ddprun.tracking", written(tmp_path / "vision"), *flags], env=calls.environment(**env))
    assert (done.returncode, done.stderr) == (0, "")
    begun, *logged, end = calls()
    assert begun[:2] == ["init", expected] and (begun[2]["project"], begun[2]["name"]) == ("ddprun", "vision")
    assert begun[2].get("id") == ("vision" if expected == "wandb" else None)
    assert (logged, end) == (LOGGED, ["finish"])


def test_a_training_that_runs_is_followed_also_when_it_is_resumed(tmp_path, calls):
    metrics = written(tmp_path / "vision") / "metrics.jsonl"
    command = [sys.executable, "-m", "ddprun.tracking", metrics, "-f", "--name", "n", "--project", "p"]
    following = start(command, env=calls.environment())
    wait_for("both records", lambda: calls()[1:] == LOGGED)
    with open(metrics, "r+") as file:  # as train does: what came after the checkpoint is made again
        file.truncate(len(json.dumps(RECORDS[0])) + 1)
        file.seek(0, os.SEEK_END)
        file.write('{"step": 4, "l": 9}\n{"step": 6, "l": 1}\n{"st')
    wait_for("the step after them", lambda: len(calls()) > 3)
    following.send_signal(signal.SIGTERM)
    assert following.wait(timeout=60) == 0
    assert calls()[0][2]["name"] == "n" and calls()[0][2]["project"] == "p"
    assert calls()[3:] == [["log", 6, {"l": 1}], ["finish"]]


@pytest.mark.parametrize("why", ["refuses", "missing"])
def test_a_tracker_that_fails_costs_a_line_and_no_training(tmp_path, calls, why):
    script = tmp_path / "training.py"
    script.write_text(NET + ACCELERATE.replace("accelerate_tracker()", "accelerate_tracker(track='wandb')"))
    env = calls.environment(REFUSES="no server")
    if why == "missing":
        (tmp_path / "packages" / "wandb" / "__init__.py").write_text("raise ImportError('broken')")
    done = run([sys.executable, script, tmp_path], env=env)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("ddprun.tracking: ")]
    assert len(lines) == 1 and ("no server" if why == "refuses" else "pip install wandb") in lines[0]
    command = run([sys.executable, "-m", "ddprun.tracking", written(tmp_path / "vision"), "--to", "wandb"], env=env)
    assert command.returncode == 1 and command.stderr.splitlines() == lines


@pytest.mark.parametrize(
    ("program", "callback", "name"),
    [
        pytest.param(TRANSFORMERS, "transformers_callback", "loss", id="transformers", marks=pytest.mark.nightly),
        pytest.param(
            LIGHTNING.replace("max_epochs=2", "max_epochs=2, log_every_n_steps=1"),
            "lightning_callback",
            "loss",
            id="lightning",
            marks=pytest.mark.nightly,
        ),
        pytest.param(ACCELERATE, "accelerate_tracker", "loss", id="accelerate"),
    ],
)
def test_a_callback_logs_the_values_of_rank_0(tmp_path, calls, program, callback, name):
    script = tmp_path / "training.py"
    script.write_text(NET + program.replace(f"ddprun.{callback}()", f"ddprun.{callback}(track=True)"))
    done = run([sys.executable, script, tmp_path], env=calls.environment(TORCHELASTIC_RUN_ID="job/7"))
    assert done.returncode == 0, done.stderr
    begun, *logged = calls()
    assert begun == ["init", "trackio", {"project": "ddprun", "name": "job/7", "resume": "allow"}]
    losses = [(step, values[name]) for kind, step, values in (call for call in logged if call[0] == "log") if name in values]
    assert len(losses) > 1 and all(isinstance(loss, float) and loss > 0 for _, loss in losses)
    assert [step for step, _ in losses] == sorted(step for step, _ in losses)


def test_other_ranks_log_nothing(tmp_path, calls):
    program = "from ddprun.tracking import Tracking\none = Tracking()\none.log(1, {'loss': 1.0})\none.finish()\n"
    for rank in "1", "0":
        assert run([sys.executable, "-c", program], env=calls.environment(RANK=rank)).returncode == 0
        assert len(calls()) == (3 if rank == "0" else 0)


def test_a_file_that_is_not_there_is_named(tmp_path, calls):
    done = run([sys.executable, "-m", "ddprun.tracking", tmp_path], env=calls.environment())
    assert done.returncode == 1 and re.fullmatch(r"ddprun.tracking: cannot read .*metrics.jsonl: No such file.*\n", done.stderr)
