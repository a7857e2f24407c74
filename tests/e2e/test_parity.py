# SPDX-License-Identifier: Apache-2.0
"""The same training in C++ under ddprun and in Python under torchrun ends in the same parameters and buffers."""

import pathlib
import sys

import pytest
from conftest import DDPRUN, clean_environment, run, torchrun_standalone

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 20


def compare(tmp_path, model, flags, batch_size, rate, tolerance=None, steps=STEPS):
    recipe = ["--model", model, "--dataset", "fashion-mnist", "--batch-size", batch_size, "--seed", "7", "--lr", rate]
    recipe += ["--momentum", "0.9", "--weight-decay", "0.0005", "--no-augment", "--no-eval", *flags]
    env = clean_environment(OMP_NUM_THREADS="1")
    for length, folder in ((0, "initial"), (steps, "final")):
        done = run(
            [DDPRUN, "--standalone", "--nproc-per-node", "2", "train", *recipe]
            + ["--epochs", "1", "--max-steps", length, "--output-dir", tmp_path / folder],
            timeout=400,
            env=env,
        )
        assert done.returncode == 0, done.stderr
    done = run(
        [*torchrun_standalone(), "--nproc-per-node", "2", HERE / "parity_ddp.py", *recipe]
        + ["--steps", steps, "--init", tmp_path / "initial" / "cifar_net.pth"]
        + ["--final", tmp_path / "final" / "cifar_net.pth"]
        + (["--tolerance", tolerance] if tolerance else []),
        timeout=400,
        env=env,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout, file=sys.stderr)


@pytest.mark.parametrize(
    ("model", "flags", "batch_size"),
    [
        ("netresdeep", ["--shared-blocks"], 32),
        ("netresdeep", [], 32),
        ("resnet18", [], 34),
    ],
)
def test_twenty_steps_of_two_ranks(tmp_path, model, flags, batch_size):
    compare(tmp_path, model, flags, batch_size, "0.005")


@pytest.mark.parametrize(
    ("flags", "rate", "tolerance"),
    [
        (["--nesterov", "--label-smoothing", "0.1", "--schedule", "one-cycle"], "0.01", "1e-5"),
        # Without AdamW, which turns the last bit of the norm (summed in doubles here) into a step where gradients are small.
        (["--clip-norm", "0.5", "--schedule", "linear", "--warmup-steps", "4"], "0.005", "1e-5"),
        (["--optimizer", "adamw", "--schedule", "linear", "--warmup-steps", "4"], "0.001", "1e-5"),
        (["--optimizer", "adam"], "0.001", "1e-5"),
        (["--accumulate", "3", "--ema-decay", "0.9", "--schedule", "constant"], "0.005", "1e-5"),
        (["--no-channels-last"], "0.005", "1e-5"),
    ],
    ids=["nesterov", "clip", "adamw", "adam", "accumulate", "planes"],
)
def test_recipes(tmp_path, flags, rate, tolerance):
    compare(tmp_path, "netresdeep", flags, 16, rate, tolerance=tolerance)


def test_mixed_precision(tmp_path):
    # Roundings of bf16 are of a hundredth; a step that forgot the cast, or cast the weights, would be far away.
    compare(tmp_path, "netresdeep", ["--amp", "bf16"], 16, "0.005", tolerance="2e-3")
