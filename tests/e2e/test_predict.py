# SPDX-License-Identifier: Apache-2.0
"""`train predict`: a trained model sees image files as its evaluation saw the test images, and names their classes."""

import json
import math
import re

import numpy
import pytest
from conftest import TRAIN, run
from PIL import Image
from test_data import make_cifar10, make_idx
from test_image_files import save
from test_train_folders import one_sentence

SHORT = ["--model", "simple-cnn", "--batch-size", "8", "--max-steps", "6", "--lr", "0.02", "--warmup-epochs", "0"]
CLASSES = {"imagefolder": ["ape", "cat"], "cifar10": ["airplane", "automobile", "bird", "cat"], "idx": None}


def train(folder, *flags):
    done = run([TRAIN, *SHORT, "--output-dir", folder, *flags])
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "summary.json").read_text())


def predict(*arguments, cwd=None):
    return run([TRAIN, "predict", *arguments], cwd=cwd)


def image_folder(data, _):
    endings = ("jpg", "png", "ppm", "bmp")
    for part in ("train", "val"):
        for seed, label in enumerate(CLASSES["imagefolder"]):
            for number, ending in enumerate(endings):
                save(data / part / label / f"{number}.{ending}", 10 * seed + number)
    return [(path, label) for label, name in enumerate(CLASSES["imagefolder"]) for path in sorted((data / "val" / name).iterdir())]


def files_of(planes, labels, folder):
    """The images as PNG files; planes: N x channels x height x width."""
    folder.mkdir()
    found = []
    for number, (image, label) in enumerate(zip(planes, labels)):
        path = folder / f"{number}.png"
        Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)).save(path)
        found.append((path, int(label)))
    return found


def cifar10(data, folder):
    data.mkdir()
    make_cifar10(data, records=20)
    records = numpy.fromfile(data / "test_batch.bin", numpy.uint8).reshape(-1, 3073)
    return files_of(records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0], folder)


def idx(data, folder):
    data.mkdir()
    make_idx(data, count=20)
    images = numpy.fromfile(data / "t10k-images-idx3-ubyte", numpy.uint8)[16:].reshape(-1, 1, 28, 28)
    return files_of(images, numpy.fromfile(data / "t10k-labels-idx1-ubyte", numpy.uint8)[8:], folder)


@pytest.mark.parametrize("make", [image_folder, cifar10, idx])
def test_files_get_the_probabilities_of_the_evaluation(tmp_path, make):
    dataset = make.__name__.replace("_", "")
    files = make(tmp_path / "data", tmp_path / "files")
    summary = train(tmp_path, "--dataset", dataset, "--data-dir", tmp_path / "data", "--input-size", "32", "--tta", "mirror")
    done = predict("--model", tmp_path, "--json", "--top", "99", *(path for path, _ in files))
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["image"] for one in told] == [str(path) for path, _ in files]
    right, loss = 0, 0
    for one, (_, label) in zip(told, files):
        assert "resized_from" not in one
        assert sum(each["probability"] for each in one["classes"]) == pytest.approx(1)
        right += one["classes"][0]["label"] == label
        loss -= math.log(next(each["probability"] for each in one["classes"] if each["label"] == label))
        for each in one["classes"][: len(CLASSES[dataset] or [])]:
            if each["label"] < len(CLASSES[dataset]):
                assert each["class"] == CLASSES[dataset][each["label"]]
    confusion = [[0] * len(row) for row in summary["by_class"]["confusion"]]
    for one, (_, label) in zip(told, files):
        confusion[label][one["classes"][0]["label"]] += 1
    assert confusion == summary["by_class"]["confusion"]
    assert right == round(summary["test_accuracy"] * len(files))
    assert loss / len(files) == pytest.approx(summary["test_loss"], abs=1e-5)


def test_a_line_of_text_names_the_classes_and_a_changed_size(tmp_path):
    train(tmp_path, "--dataset", "synthetic", "--samples", "64")
    Image.new("RGB", (32, 32), (9, 99, 199)).save(tmp_path / "a.png")
    Image.new("L", (80, 40), 99).save(tmp_path / "b.jpg")
    done = predict("a.png", "b.jpg", "--top=2", cwd=tmp_path)  # the model of this folder
    assert done.returncode == 0, done.stderr
    share = r"class \d \d+\.\d\d %"
    assert re.fullmatch(rf"a.png: {share}, {share}\nb.jpg: {share}, {share} \(resized from 80x40\)\n", done.stdout), done.stdout


def test_what_is_no_image_is_one_sentence_and_the_others_are_shown(tmp_path):
    train(tmp_path / "run", "--dataset", "synthetic", "--samples", "64")
    Image.new("RGB", (32, 32)).save(tmp_path / "a.png")
    Image.new("RGB", (32, 32)).save(tmp_path / "b.png", "GIF")
    done = predict("--model", tmp_path / "run", tmp_path / "b.png", tmp_path / "a.png")
    assert done.stdout.startswith(f"{tmp_path}/a.png: class ") and done.stdout.count("\n") == 1
    one_sentence(done, 1, f"train: {tmp_path}/b.png: is a GIF image, but must be JPEG, PNG, PPM, PGM or BMP; pass a whole ")
    done = predict("--model", tmp_path / "run", tmp_path / "gone", tmp_path / "b.png", tmp_path / "a.png", tmp_path)
    assert done.returncode == 1 and done.stdout.count("\n") == 1
    assert [line.split(": ")[1] for line in done.stderr.splitlines()] == [f"{tmp_path}/gone", f"{tmp_path}/b.png", str(tmp_path)]


def test_a_model_that_cannot_be_used_is_one_sentence(tmp_path):
    Image.new("RGB", (32, 32)).save(tmp_path / "a.png")
    image = tmp_path / "a.png"
    one_sentence(predict("--model", tmp_path / "gone", image), 1, f"{tmp_path}/gone is not there; pass --model with")
    one_sentence(predict(image, cwd=tmp_path), 1, "there is no model and no good checkpoint in .; name the folder of a run")
    train(tmp_path, "--model", "linear", "--dataset", "random", "--samples", "64")
    one_sentence(predict("--model", tmp_path, image), 1, "is of --dataset random, whose samples are no images in colour; pass ")
    (tmp_path / "cifar_net.pth.json").unlink()
    one_sentence(predict("--model", tmp_path, image), 1, "does not say which model and which images it is of; write a file that does")
    one_sentence(predict("--model", tmp_path), 2, "image is required", "train predict --help")
    one_sentence(predict("--top", "0", image), 2, "--top")
