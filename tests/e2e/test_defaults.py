# SPDX-License-Identifier: Apache-2.0
"""What `train` does where nothing is chosen: the model that is written is the one that was trained (its running
statistics are those of its batches), and it learns. tests/bench/defaults.py shows it with whole data sets."""

import json
import sys

import pytest
from conftest import REPO, TRAIN, clean_environment, run

sys.path.insert(0, str(REPO / "tests" / "bench"))
sys.path.insert(0, str(REPO / "tests" / "testing"))
import cifar_stand_in  # noqa: E402
import defaults  # noqa: E402

# As a share of the test images; each way of evaluating is this uncertain.
GAP_MAX = 0.03


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    cifar_stand_in.write(folder, train=12000, test=1000)
    return folder


def train(folder, *settings):
    done = run([TRAIN, *settings, "--output-dir", folder], timeout=500, env=clean_environment(OMP_NUM_THREADS="1"))
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.nightly
def test_the_default_model_is_evaluated_as_it_was_trained(tmp_path, stand_in):
    said = train(tmp_path, "--data-dir", stand_in, "--epochs", "1")
    assert "--shared-blocks" not in said
    accuracy = json.loads((tmp_path / "summary.json").read_text())["test_accuracy"]
    running, batch = defaults.accuracies(tmp_path / "cifar_net.pth", *defaults.read_cifar10(stand_in))
    assert running == pytest.approx(accuracy, abs=0.005), "Python evaluates what train evaluated"
    assert running > batch - GAP_MAX, (running, batch)
    assert running > 0.3, "it learns; chance is 0.1"


def test_shared_blocks_say_what_to_expect(tmp_path, stand_in):
    said = train(tmp_path, "--data-dir", stand_in, "--shared-blocks", "--max-steps", "1", "--no-eval")
    assert said.count("--shared-blocks: one set of batch-norm statistics serves the ten uses of the block") == 1
