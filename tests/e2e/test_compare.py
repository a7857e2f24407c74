# SPDX-License-Identifier: Apache-2.0
"""`train compare`: the same work in three ways, started from a plain shell."""

import json
import pathlib
import signal

from conftest import TRAIN, clean_environment, processes_of_this_session, run, start, wait_for

WORK = ["--dataset", "synthetic", "--samples", "256", "--batch-size", "8", "--max-steps", "4", "--lr", "0.01"]


def compare(folder, *more):
    done = run([TRAIN, "compare", "--json", folder / "figures.json", "--output-dir", folder, *more], timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, json.loads((folder / "figures.json").read_text())


def test_three_columns_of_the_same_work(tmp_path):
    table, figures = compare(tmp_path, *WORK)
    assert table.splitlines()[0].split() == ["plain", "ddp", "pipeline"]
    for row in ("ranks", "images a second", "training time", "total time", "loss", "test accuracy", "speed-up"):
        assert any(line.startswith(row) for line in table.splitlines()), table
    assert [figures[name]["ranks"] for name in ("plain", "ddp", "pipeline")] == [1, 2, 2]
    for name in figures:
        assert figures[name]["steps"] == 4
        assert figures[name]["images"] == 4 * 16, name  # the global batch is the same
        assert figures[name]["images_per_second"] > 0
        assert (tmp_path / name / "cifar_net.pth").is_file()


def test_a_model_that_cannot_be_split_is_compared_without(tmp_path):
    table, figures = compare(tmp_path, "--model", "linear", "--dataset", "random", *WORK[2:], "--no-eval")
    assert figures["ddp"]["steps"] == figures["plain"]["steps"] == 4
    assert "images_per_second" not in figures["pipeline"]
    assert "parts that --model linear" in figures["pipeline"]["error"]
    assert "pipeline: --pipeline 2 is more than" in table


def test_a_run_that_fails_is_told_with_its_log(tmp_path):
    done = run([TRAIN, "compare", *WORK, "--output-dir", tmp_path, "--lr", "1e30"])
    assert done.returncode == 1
    assert "the plain run ended with 1" in done.stderr and str(tmp_path / "plain" / "output.log") in done.stderr


def test_under_a_launcher_it_says_that_it_needs_none(tmp_path):
    env = clean_environment(RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
    done = run([TRAIN, "compare", *WORK, "--output-dir", tmp_path], env=env)
    assert done.returncode == 2
    assert "without a launcher" in done.stderr


def test_its_runs_end_with_it(tmp_path):
    endless = ["--max-steps", "100000", "--epochs", "100000"]
    process = start([TRAIN, "compare", *WORK, *endless, "--output-dir", tmp_path])
    plain = pathlib.Path(tmp_path / "plain" / "metrics.jsonl")
    wait_for("the plain run", lambda: plain.exists())
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    wait_for("the end of all", lambda: not processes_of_this_session())
