# SPDX-License-Identifier: Apache-2.0
"""--keep-best and --patience: the best checkpoint is kept, named and evaluated, and a training that gets no better ends; the same
after a kill and a resume, and when a rank dies."""

import json
import os
import re
import signal

import pytest
from conftest import DDPRUN, TRAIN, run
from test_in_place import Nodes, steps, trainers
from test_run_folder import evaluated
from test_train_folders import one_sentence

# The accuracy goes up and down before it stays at 100 %: either way the last evaluation is not the best one.
SMALL = ["--model", "simple-cnn", "--dataset", "synthetic", "--samples", "128", "--batch-size", "16", "--epochs", "30"]
SMALL += ["--lr", "0.02", "--schedule", "constant", "--warmup-epochs", "0", "--eval-every", "0.5", "--deterministic"]
TESTED = 32  # images


def train(folder, *flags, ranks=1):
    done = run([DDPRUN, "--standalone", "--nproc-per-node", ranks, TRAIN, *SMALL, "--output-dir", folder, *flags])
    assert done.returncode == 0, done.stderr
    return done.stdout


def evaluations(folder):
    """(step, accuracy, loss) of each, from the metrics."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line["accuracy/test"], line["loss/test"]) for line in lines if "accuracy/test" in line]


def summary_of(folder):
    return json.loads((folder / "summary.json").read_text())


@pytest.mark.parametrize("metric", ["accuracy", pytest.param("loss", marks=pytest.mark.nightly)])
def test_the_best_checkpoint_is_kept_named_and_evaluated(tmp_path, metric):
    said = train(tmp_path, "--keep-best", metric, "--patience", "4", "--epochs", "6")
    found = evaluations(tmp_path)
    best = min(found, key=lambda one: one[2]) if metric == "loss" else max(found, key=lambda one: one[1])
    assert metric == "loss" or best != found[-1], "a training whose last evaluation is the best shows nothing"
    file = f"{tmp_path}/checkpoints/best.safetensors"
    value = f"loss of {best[2]:.4f}" if metric == "loss" else f"accuracy of {100 * best[1]:.2f} %"
    assert re.search(rf"best model +{re.escape(file)} \({value} after step {best[0]}\)", said), said
    summary = summary_of(tmp_path)
    assert (summary["best_file"], summary["best_step"]) == (file, best[0])
    assert summary["best_accuracy"] == pytest.approx(best[1])
    model, share, loss = evaluated(tmp_path)
    assert (model, share) == (file, f"{round(TESTED * best[1])} of {TESTED} images")
    assert float(loss) == pytest.approx(best[2], abs=1e-3)
    # The newest ones are kept beside it.
    assert len(list((tmp_path / "checkpoints").glob("step-*"))) == 2


def test_patience_ends_the_training_on_all_ranks(tmp_path):
    said = train(tmp_path, "--patience", "2", ranks=2)
    found = evaluations(tmp_path)
    assert 3 <= len(found) < 60
    best = max(found, key=lambda one: one[1])
    assert found.index(best) == len(found) - 3, found
    line = f"training ends after step {found[-1][0]}: --patience 2, and no evaluation since was better than the accuracy of "
    assert said.count(line + f"{100 * best[1]:.2f} % after step {best[0]}\n") == 1, said
    assert "parameters equal on all ranks" in said
    assert not (tmp_path / "checkpoints").exists(), "nobody has asked for them"


def test_a_complete_training_without_patience_left_stays_complete(tmp_path):
    flags = ["--patience", "2", "--keep-best", "accuracy"]
    train(tmp_path, *flags)
    steps, model = evaluations(tmp_path)[-1][0], (tmp_path / "cifar_net.pth").read_bytes()
    said = train(tmp_path, *flags, "--resume", "auto")
    assert f"the training is complete at step {steps} of --patience 2: no step is left" in said, said
    assert (tmp_path / "cifar_net.pth").read_bytes() == model
    assert re.search(r"best model +\S+/best.safetensors ", said), said
    # More patience goes on.
    said = train(tmp_path, *flags, "--resume", "auto", "--patience", "3")
    assert evaluations(tmp_path)[-1][0] > steps, said


def outcome(folder):
    summary = summary_of(folder)
    best = {key: value for key, value in summary.items() if key.startswith("best") and key != "best_file"}
    weights = (folder / "cifar_net.pth").read_bytes()
    return best, evaluations(folder)[-1], weights, evaluated(folder)[1:]


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.nightly), 2])
def test_a_resumed_training_has_the_best_of_an_undisturbed_one(tmp_path, ranks):
    flags = ["--patience", "4", "--keep-best", "accuracy", "--checkpoint-every", "3"]
    train(tmp_path / "whole", *flags, ranks=ranks)
    end = evaluations(tmp_path / "whole")[-1][0]
    best = summary_of(tmp_path / "whole")["best_step"]
    # Stopped between the best evaluation and the end, which the count of evaluations must outlive.
    train(tmp_path / "parts", *flags, "--no-eval", "--max-steps", str((best + end) // 2), ranks=ranks)
    train(tmp_path / "parts", *flags, "--resume", "auto", ranks=ranks)
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--keep-best", "accuracy"], "its checkpoint best.safetensors is not in "),
        (["--keep-best", "loss"], "it was by another metric"),
        (["--patience", "4"], None),
        ([], None),
    ],
)
def test_a_best_one_that_cannot_be_compared_or_evaluated_is_told_and_does_not_count(tmp_path, flags, why):
    train(tmp_path, "--keep-best", "accuracy", "--epochs", "2")
    (tmp_path / "checkpoints" / "best.safetensors").unlink()
    said = train(tmp_path, "--epochs", "3", "--resume", "auto", *flags)
    assert said.count("the best evaluation so far does not count: ") == (1 if why else 0), said
    assert not why or f"{why}" in said
    if "--keep-best" in flags:
        assert (tmp_path / "checkpoints" / "best.safetensors").is_file()
        assert summary_of(tmp_path)["best_step"] > 16


def test_what_cannot_be_compared_is_refused(tmp_path):
    small = [TRAIN, "--dataset", "synthetic", "--output-dir", tmp_path]
    for flags in (["--patience", "3"], ["--keep-best", "loss"]):
        one_sentence(run([*small, *flags]), 2, f"{flags[0]} compares evaluations during the training, and --eval-every 0 makes none")
    one_sentence(run([*small, "--keep-best", "f1", "--eval-every", "1"]), 2, "'f1' is not known; choose one of off, accuracy, loss")
    one_sentence(run([*small, "--patience", "-1", "--eval-every", "1"]), 2, "--patience must not be negative")


# 128 steps of two ranks an epoch, and 100 % after the first: 1 000 more until the end, in which two ranks are killed, also where
# the test is late.
IN_PLACE = [*SMALL, "--samples", "1024", "--batch-size", "4", "--eval-every", "1", "--patience", "8"]
IN_PLACE += ["--keep-best", "accuracy", "--log-samples"]


@pytest.mark.nightly
def test_ranks_that_go_on_in_place_agree_on_the_best(tmp_path):
    """A new process in a dead rank's place, also in rank 0's, has counted no evaluation itself."""
    with Nodes(tmp_path) as nodes:
        flags = ["--standalone", "--nproc-per-node", 2, "--max-restarts", 9]
        plain = nodes.start(flags, [TRAIN, *IN_PLACE, "--output-dir", tmp_path / "plain"])
        assert plain.wait() == 0, plain.text()
        best = summary_of(tmp_path / "plain")["best_step"]
        assert best < evaluations(tmp_path / "plain")[-1][0]
        folder = tmp_path / "run"
        run_of_two = nodes.start(flags, [TRAIN, *IN_PLACE, "--output-dir", folder])
        at = best + 129  # one evaluation was no better
        for victim in (1, 0):
            nodes.until(lambda at=at: min(steps(folder).values(), default=0) >= at, "a step after the best one")
            before = nodes.until(lambda: len(found := trainers(folder)) == 2 and found, "two ranks")
            os.kill(before[victim], signal.SIGKILL)
            nodes.until(
                lambda victim=victim, before=before: len(found := trainers(folder)) == 2 and found[victim] != before[victim],
                "another rank in its place",
            )
            at = max(steps(folder).values()) + 2
        assert run_of_two.wait() == 0, run_of_two.text()
        assert run_of_two.text().count("goes on after step ") == 2, run_of_two.text()
    assert outcome(folder) == outcome(tmp_path / "plain")
