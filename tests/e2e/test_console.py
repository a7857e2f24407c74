# SPDX-License-Identifier: Apache-2.0
"""What a person sees of a training: what is trained where in the first line, each epoch's mean loss and training accuracy
over all ranks, and a failure's sentence once in the verdict."""

import json
import re
import sys

import numpy
import pytest
import torch
import torch.nn.functional as F
from conftest import DDPRUN, REPO, clean_environment, run
from python_models import make_model

sys.path.insert(0, str(REPO / "tests" / "bench"))
sys.path.insert(0, str(REPO / "tests" / "testing"))
import cifar_stand_in  # noqa: E402
import defaults  # noqa: E402

IMAGES = 505


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    cifar_stand_in.write(folder, train=IMAGES, test=20)
    return folder


def train(folder, ranks, *settings, code=0):
    done = run(
        [DDPRUN, "--standalone", "--nproc-per-node", ranks, "train", "--output-dir", folder, *settings],
        timeout=200,
        env=clean_environment(OMP_NUM_THREADS="1"),
    )
    assert done.returncode == code, done.stderr
    return done


def test_the_first_line_says_what_is_trained_where(tmp_path, data):
    settings = ["--data-dir", data, "--batch-size", "8", "--accumulate", "2", "--max-steps", "1"]
    done = train(tmp_path, 2, *settings)
    lines = [line.removeprefix("[0] ") for line in done.stdout.splitlines() if line.startswith("[0] ")]
    assert lines[0] == (
        "2 ranks on cpu (gloo); cifar10: 505 training and 20 test images of 3x32x32, 10 classes; "
        "batch 8 per rank, 32 per step; netresdeep: 159594 parameters"
    )
    assert not any("training and" in line for line in done.stdout.splitlines() if line.startswith("[1] "))
    assert "hidden averaging" not in done.stdout


def training_figures(folder, data):
    """Mean loss and accuracy of the written model on all training images."""
    files = [data / "cifar-10-batches-bin" / f"data_batch_{i}.bin" for i in range(1, 6)]
    records = torch.from_numpy(numpy.concatenate([numpy.fromfile(f, numpy.uint8) for f in files]).reshape(-1, 3073))
    images = defaults.normalised(records[:, 1:].reshape(-1, 3, 32, 32), (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
    model = make_model("simple-cnn")
    model.load_state_dict(torch.load(folder / "cifar_net.pth"))
    labels = records[:, 0].long()
    with torch.no_grad():
        scores = model(images)
    return F.cross_entropy(scores, labels).item(), (scores.argmax(1) == labels).float().mean().item()


@pytest.mark.parametrize(
    ("ranks", "settings"),
    [(1, []), (3, []), (2, ["--accumulate", "3"]), (1, ["--pipeline", "2"]), (4, ["--pipeline", "2"])],
    ids=["one", "three", "accumulated", "stages", "stages of ranks"],
)
def test_each_epoch_ends_with_its_mean_loss_and_accuracy_over_all_ranks(tmp_path, data, ranks, settings):
    # A rate so small that no parameter moves: what the steps saw is what the written model says.
    settings = ["--model", "simple-cnn", "--data-dir", data, "--batch-size", "16", "--epochs", "2", *settings]
    done = train(tmp_path, ranks, *settings, "--lr", "1e-30", "--tensorboard", "--no-eval")
    loss, accuracy = training_figures(tmp_path, data)
    lines = re.findall(
        r"^\[(\d)\] epoch (\d)/2 mean loss (\S+) training accuracy (\S+) % \((\d+) images of all ranks\)$",
        done.stdout,
        re.MULTILINE,
    )
    assert [(rank, epoch, images) for rank, epoch, _, _, images in lines] == [("0", e, str(IMAGES)) for e in "12"]
    for _, _, shown_loss, shown_accuracy, _ in lines:
        assert float(shown_loss) == pytest.approx(loss, abs=1e-3)
        assert float(shown_accuracy) == pytest.approx(100 * accuracy, abs=0.25)
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    records = [record for record in records if "accuracy/train" in record]
    assert [record["epoch"] for record in records] == [1, 2]
    for record in records:
        assert record["loss/epoch"] == pytest.approx(loss, abs=1e-3)
        assert record["accuracy/train"] == pytest.approx(accuracy, abs=0.0025)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(tmp_path / "tensorboard"))
    accumulator.Reload()
    assert len(accumulator.Scalars("accuracy/train")) == len(accumulator.Scalars("loss/epoch")) == 2


def test_a_failed_ranks_sentence_comes_once(tmp_path, data):
    done = train(tmp_path, 1, "--data-dir", data, "--lr", "1e9", "--warmup-steps", "0", code=1)
    assert "[0] train: rank 0: the loss is " in done.stderr, done.stderr
    assert done.stderr.count("the loss is ") == 1, done.stderr
