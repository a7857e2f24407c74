# SPDX-License-Identifier: Apache-2.0
"""The same training in C++ under ddprun and in Python under torchrun ends in the same parameters and buffers."""

import pathlib
import sys

import pytest
from conftest import DDPRUN, clean_environment, run, torchrun_standalone

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 20


@pytest.mark.parametrize(
    ("model", "flags", "batch_size"),
    [
        ("netresdeep", ["--shared-blocks"], 32),
        ("netresdeep", ["--no-shared-blocks"], 32),
        ("resnet18", [], 8),
    ],
)
def test_twenty_steps_of_two_ranks(tmp_path, model, flags, batch_size):
    recipe = ["--model", model, *flags, "--dataset", "fashion-mnist", "--batch-size", batch_size, "--seed", "7"]
    recipe += ["--lr", "0.005", "--momentum", "0.9", "--weight-decay", "0.0005", "--no-augment", "--no-eval"]
    env = clean_environment(OMP_NUM_THREADS="1")
    for steps, folder in ((0, "initial"), (STEPS, "final")):
        done = run(
            [DDPRUN, "--standalone", "--nproc-per-node", "2", "train", *recipe]
            + ["--epochs", "1", "--max-steps", steps, "--output-dir", tmp_path / folder],
            timeout=400,
            env=env,
        )
        assert done.returncode == 0, done.stderr
    done = run(
        [*torchrun_standalone(), "--nproc-per-node", "2", HERE / "parity_ddp.py", *recipe]
        + ["--steps", STEPS, "--init", tmp_path / "initial" / "cifar_net.pth"]
        + ["--final", tmp_path / "final" / "cifar_net.pth"],
        timeout=400,
        env=env,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout, file=sys.stderr)
