# SPDX-License-Identifier: Apache-2.0
"""`train compare`: the same work in three ways, started from a plain shell; and two past runs."""

import json
import pathlib
import signal

import pytest
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


def test_two_past_runs_side_by_side(tmp_path):
    for name, rate in (("a", "0.01"), ("b", "0.05")):
        settings = ["--model", "simple-cnn", "--dataset", "synthetic", "--samples", "64", "--batch-size", "8", "--epochs", "3"]
        done = run([TRAIN, *settings, "--lr", rate, "--eval-every", "1", "--output-dir", tmp_path / name])
        assert done.returncode == 0, done.stderr
    done = run([TRAIN, "compare", "a/", "b", "--json", "figures.json"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    tables = [[line.split() for line in table.splitlines()] for table in done.stdout.split("\n\n")]
    figures, settings, evaluations, classes = tables
    summaries = [json.loads((tmp_path / name / "summary.json").read_text()) for name in "ab"]
    assert ["steps", "24", "24"] in figures
    assert ["best", "epoch", *(f"{summary['best_epoch']:.2f}" for summary in summaries)] in figures
    assert settings == [["settings", "that", "differ", "a", "b"], ["lr", "0.01", "0.05"]]
    assert [row[0] for row in evaluations[1:]] == ["1", "2", "3"]
    last = [f"{100 * summary['test_accuracy']:.2f}" for summary in summaries]
    assert [evaluations[3][1], evaluations[3][3]] == last
    assert evaluations[3][5:] == [f"{summary['test_loss']:.4f}" for summary in summaries]
    shares = [summary["by_class"]["accuracy"] for summary in summaries]
    known = [label for label in range(10) if shares[0][label] is not None]
    assert sorted(int(row[0]) for row in classes[1:]) == known
    for label, a, _, b, _, difference in classes[1:]:
        assert (float(a), float(b)) == tuple(pytest.approx(100 * share[int(label)], abs=0.005) for share in shares)
        assert float(difference) == pytest.approx(float(b) - float(a), abs=0.011)
    assert [abs(float(row[-1])) for row in classes[1:]] == sorted((abs(float(row[-1])) for row in classes[1:]), reverse=True)
    told = json.loads((tmp_path / "figures.json").read_text())
    assert [one["run"] for one in told] == ["a", "b"] and told[1]["summary"] == summaries[1]
    assert [one["epoch"] for one in told[0]["evaluations"]] == [1, 2, 3]


def test_a_past_run_that_is_none_is_one_sentence(tmp_path):
    for arguments, code, words in (
        ((tmp_path / "gone", tmp_path), 1, f"{tmp_path}/gone/summary.json: No such file or directory; give the --output-dir of"),
        ((tmp_path,), 2, "RUN"),
        ((tmp_path, tmp_path, tmp_path), 2, "train compare --help"),
    ):
        done = run([TRAIN, "compare", *arguments])
        assert (done.returncode, done.stderr.count("\n")) == (code, 1) and words in done.stderr, done
    (tmp_path / "summary.json").write_text("[]")
    done = run([TRAIN, "compare", tmp_path, tmp_path])
    assert done.returncode == 1 and "summary.json is no summary of train; give" in done.stderr
