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
from conftest import DDPRUN, REPO, TRAIN, clean_environment, run
from PIL import Image
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


def test_images_by_class_are_in_table_summary_and_picture(tmp_path, data):
    """What Python's model takes them for; the best of several evaluations, as that is the model that is kept."""
    settings = ["--model", "simple-cnn", "--data-dir", data, "--batch-size", "16", "--epochs", "3", "--lr", "0.05"]
    done = train(tmp_path, 2, *settings, "--eval-every", "1", "--keep-best", "loss")
    summary = json.loads((tmp_path / "summary.json").read_text())
    classes = summary["by_class"]
    assert classes["step"] == summary["best_step"] and classes["names"][3] == "cat"
    assert summary["best_epoch"] in (1, 2, 3)
    assert run([TRAIN, "export", tmp_path, "--format", "pth", "--output", tmp_path / "best.pth"]).returncode == 0
    model = make_model("simple-cnn")
    model.load_state_dict(torch.load(tmp_path / "best.pth"))
    records = torch.from_numpy(numpy.fromfile(data / "cifar-10-batches-bin" / "test_batch.bin", numpy.uint8).reshape(-1, 3073))
    images = defaults.normalised(records[:, 1:].reshape(-1, 3, 32, 32), (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
    with torch.no_grad():
        predicted = model.eval()(images).argmax(1)
    confusion = torch.zeros(10, 10, dtype=torch.long)
    for label, taken_for in zip(records[:, 0].tolist(), predicted.tolist()):
        confusion[label, taken_for] += 1
    assert classes["confusion"] == confusion.tolist()
    assert classes["images"] == confusion.sum(1).tolist()
    table = done.stdout.partition(f"[0] test images by class, after step {classes['step']}\n")[2].splitlines()
    assert table[0].split()[1:] == ["class", "accuracy", *(word for i in range(10) for word in ("as", str(i)))]
    assert table[4].split()[-10:] == [str(count) for count in confusion[3].tolist()]
    assert table[4].startswith("[0] 3 cat ")
    assert re.search(rf"^\[0\] best epoch +{summary['best_epoch']:.0f}$", done.stdout, re.MULTILINE)
    assert f"[0] curves and confusion matrix: {tmp_path}/summary.png\n" in done.stdout
    assert Image.open(tmp_path / "summary.png").size == (1680, 480)


def test_many_classes_are_few_lines_and_no_evaluation_is_none(tmp_path):
    settings = ["--model", "simple-cnn", "--dataset", "synthetic", "--samples", "128", "--max-steps", "2", "--batch-size", "8"]
    done = train(tmp_path / "a", 1, *settings, "--num-classes", "120")
    table = done.stdout.partition("[0] lowest of 120 classes  accuracy  images\n")[2].splitlines()
    assert len(table) == 11 and table[-1].startswith("[0] curves and ")
    assert "confusion" not in json.loads((tmp_path / "a" / "summary.json").read_text())["by_class"]
    done = train(tmp_path / "b", 1, *settings, "--no-eval")
    assert "accuracy" not in done.stdout.partition("total time")[2]
    assert not (tmp_path / "b" / "summary.png").exists()
    done = train(tmp_path / "c", 1, *settings, "--no-metrics")
    assert "picture" not in done.stdout and "curves" not in done.stdout
