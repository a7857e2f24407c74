# SPDX-License-Identifier: Apache-2.0
"""What a recipe does to a training: batches shared out over ranks and steps, averages, early ends, refused settings."""

import json

import pytest
import torch
from conftest import DDPRUN, TRAIN, clean_environment, run
from test_bad_input import assert_one_sentence

# Batch norm would see other batches; everything else must not see a difference.
WITHOUT_BATCH_NORM = ["--model", "simple-cnn", "--dataset", "synthetic", "--lr", "0.02", "--seed", "5"]


def train(folder, ranks, *settings):
    done = run(
        [DDPRUN, "--standalone", "--nproc-per-node", ranks, "train", *settings, "--output-dir", folder],
        env=clean_environment(OMP_NUM_THREADS="1"),
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "summary.json").read_text()), torch.load(folder / "cifar_net.pth")


def largest_difference(one, other):
    return max((one[name] - other[name]).abs().max().item() for name in one)


def test_batches_may_be_shared_out_in_any_way(tmp_path):
    """The same global batch over ranks, and over batches that are accumulated, is the same training. 205 samples in
    batches of 15 leave 10, which three ranks share unevenly and whose losses must be weighed."""
    recipe = [*WITHOUT_BATCH_NORM, "--samples", "205", "--epochs", "2", "--no-eval"]
    summary, one = train(tmp_path / "one", 1, *recipe, "--batch-size", "15")
    assert summary["steps"] == 28
    for name, ranks, settings in (
        ("three", 3, ["--batch-size", "5"]),
        ("accumulated", 1, ["--batch-size", "5", "--accumulate", "3"]),
    ):
        summary, parameters = train(tmp_path / name, ranks, *recipe, *settings)
        assert summary["steps"] == 28
        assert summary["images"] == 410
        assert largest_difference(one, parameters) < 1e-5, name


def test_the_average_is_what_is_written_and_evaluated(tmp_path):
    recipe = [*WITHOUT_BATCH_NORM, "--batch-size", "64", "--max-steps", "12"]
    plain, weights = train(tmp_path / "plain", 2, *recipe)
    late, average = train(tmp_path / "average", 2, *recipe, "--ema-decay", "0.95")
    assert largest_difference(weights, average) > 1e-4
    assert plain["test_loss"] != late["test_loss"]
    # An average that forgets at once is the weights themselves.
    _, forgetful = train(tmp_path / "forgetful", 2, *recipe, "--ema-decay", "1e-9")
    assert largest_difference(weights, forgetful) < 1e-6


def test_training_ends_at_the_target_accuracy(tmp_path):
    recipe = ["--model", "netresdeep", "--dataset", "synthetic", "--batch-size", "32"]
    recipe += ["--epochs", "20", "--lr", "0.005", "--eval-every", "0.25"]
    summary, _ = train(tmp_path, 2, *recipe, "--target-accuracy", "30")
    assert summary["test_accuracy"] >= 0.30
    assert summary["best_accuracy"] == summary["test_accuracy"]
    assert summary["steps"] < 20 * 64
    assert summary["steps"] % 16 == 0


def test_deterministic_training_repeats_itself(tmp_path):
    recipe = ["--model", "resnet18", "--dataset", "synthetic", "--batch-size", "4", "--max-steps", "3", "--no-eval"]
    summary, first = train(tmp_path / "first", 2, *recipe, "--deterministic")
    assert summary["deterministic"] is True
    _, second = train(tmp_path / "second", 2, *recipe, "--deterministic")
    assert largest_difference(first, second) == 0


def test_pure_fp16_is_saved_resumed_and_written_as_floats(tmp_path):
    """--precision is another name of --amp. A run in two parts is that in one, bit by bit, and near the one in floats."""
    recipe = [*WITHOUT_BATCH_NORM, "--samples", "256", "--batch-size", "16", "--schedule", "constant"]
    half = [*recipe, "--precision", "fp16-pure", "--ema-decay", "0.9", "--eval-every", "0.25"]
    once, whole = train(tmp_path / "once", 2, *half, "--max-steps", "12")
    train(tmp_path / "parts", 2, *half, "--max-steps", "6", "--checkpoint-every", "6")
    _, parts = train(tmp_path / "parts", 2, *half, "--max-steps", "12", "--resume", "auto")
    assert largest_difference(whole, parts) == 0
    assert all(tensor.dtype == torch.float32 for tensor in whole.values())
    plain, floats = train(tmp_path / "floats", 2, *recipe, "--ema-decay", "0.9", "--max-steps", "12")
    assert 0 < largest_difference(whole, floats) < 1e-2
    assert abs(once["test_loss"] - plain["test_loss"]) < 0.02


@pytest.mark.parametrize(
    ("settings", "code", "says"),
    [
        (["--amp", "fp16"], 2, ["--amp fp16", "--amp bf16"]),
        (["--amp", "fp8"], 2, ["--amp", "bf16"]),
        (["--optimizer", "adamx"], 2, ["--optimizer", "adamw"]),
        (["--optimizer", "adamw", "--nesterov"], 2, ["--nesterov", "sgd"]),
        (["--schedule", "cosin"], 2, ["--schedule", "cosine"]),
        (["--accumulate", "0"], 2, ["--accumulate"]),
        (["--ema-decay", "1"], 2, ["--ema-decay"]),
        (["--target-accuracy", "101"], 2, ["--target-accuracy"]),
        (["--lr", "1e9", "--max-steps", "50"], 1, ["loss", "step", "--lr"]),
    ],
)
def test_what_cannot_be_is_one_sentence(tmp_path, settings, code, says):
    before = tmp_path / "cifar_net.pth"
    before.write_bytes(b"an earlier model")
    recipe = [TRAIN, "--dataset", "synthetic", "--batch-size", "8", "--output-dir", tmp_path]
    assert_one_sentence(run([*recipe, *settings]), code, *says)
    assert before.read_bytes() == b"an earlier model"


def test_more_ranks_than_samples(tmp_path):
    done = run(
        [DDPRUN, "--standalone", "--nproc-per-node", "2", "train", "--dataset", "synthetic", "--samples", "1"]
        + ["--output-dir", tmp_path]
    )
    assert done.returncode == 2
    assert "1 sample cannot be shared by 2 ranks" in done.stderr and "start no more ranks" in done.stderr
