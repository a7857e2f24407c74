# SPDX-License-Identifier: Apache-2.0
"""Each file of deploy/configs trains: a step of it, on images that stand in for CIFAR-10."""

import json
import sys

import pytest
import torch
from conftest import DDPRUN, REPO, TRAIN, run
from test_parity import Training, compare

sys.path.insert(0, str(REPO / "tests" / "testing"))
import cifar_stand_in  # noqa: E402

CONFIGS = REPO / "deploy" / "configs"
# What the original Python does beside train's defaults. The ninth, --epochs, says how long.
ORIGINAL = ["--shared-blocks", "--momentum", "0", "--weight-decay", "0", "--schedule", "constant", "--warmup-steps", "0"]
ORIGINAL += ["--no-augment"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    cifar_stand_in.write(folder, train=500, test=20)
    return folder


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_step_of_each(tmp_path, data, path, ranks):
    settings = ["--config", path, "--max-steps", "1", "--batch-size", "8", "--output-dir", tmp_path]
    if "cifar10" in path.read_text():
        settings += ["--data-dir", data]
    done = run([DDPRUN, "--standalone", "--nproc-per-node", ranks, "train", *settings], timeout=200)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "summary.json").read_text())["steps"] == 1
    assert torch.load(tmp_path / "cifar_net.pth")


def printed(*settings):
    done = run([TRAIN, *settings, "--print-config"])
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_original_is_a_few_flags_away_and_its_steps_are_pythons_bit_by_bit(tmp_path):
    config = printed("--config", CONFIGS / "netresdeep-original.yaml")
    assert config == printed(*ORIGINAL, "--epochs", "100")
    training = Training(" ".join(ORIGINAL), lr="0.01", steps=8, tolerance="0")
    said = compare(tmp_path, {"original": training})["original"]
    assert said.startswith("equal: "), said


def test_a_linear_model_takes_random_data_unless_told_otherwise(tmp_path):
    done = run([TRAIN, "--model", "linear", "--input-size", "20", "--max-steps", "2", "--output-dir", tmp_path])
    assert done.returncode == 0, done.stderr
    assert "; random: 4096 training and 1024 test images of 1x1x20, 2 classes;" in done.stdout
    assert torch.load(tmp_path / "cifar_net.pth")["fc.weight"].shape == (2, 20)
    assert "\ndataset: random " in printed("--model", "linear")
    assert "\ndataset: synthetic " in printed("--model", "linear", "--dataset", "synthetic")
    assert "\ndataset: cifar10 " in printed()
