# SPDX-License-Identifier: Apache-2.0
"""Damaged images: `train check` names all of them, --skip-damaged goes on without them, and a training whose damaged files
were removed can be resumed."""

import re
import shutil

import pytest
from conftest import DDPRUN, TRAIN, run
from test_data import make_image_folder, png, sentence

SETTINGS = ["--dataset", "imagefolder", "--input-size", 32, "--batch-size", 4, "--model", "simple-cnn", "--loader-threads", 2]
RANKS = [DDPRUN, "--standalone", "--nproc-per-node"]


def cut_off(*paths):
    for path in paths:
        path.write_bytes(path.read_bytes()[:-40])


@pytest.fixture
def data(tmp_path):
    """16 training and 8 test images, of which these are damaged."""
    folder = tmp_path / "data"
    make_image_folder(folder, of_each=8)
    for label in ("cat", "dog"):
        for i in range(4, 8):
            (folder / "val" / label / f"{i}.png").unlink()
    cut_off(folder / "train" / "cat" / "7.png", folder / "val" / "dog" / "2.png")
    (folder / "train" / "dog" / "0.png").write_text("<html>404</html>")
    return folder


def train(data, output, *more, ranks=1):
    launch = [*RANKS, ranks] if ranks > 1 else []
    return run([*launch, TRAIN, *SETTINGS, "--data-dir", data, "--output-dir", output, *more])


def checksum(done):
    assert done.returncode == 0, done.stderr
    return re.search(r"parameters crc32 (\w+)", done.stdout)[1]


@pytest.mark.parametrize("ranks", [1, 2])
def test_check_names_all_damaged_files(tmp_path, data, ranks):
    launch = [*RANKS, ranks] if ranks > 1 else []
    done = run([*launch, TRAIN, "check", data])
    assert done.returncode == 1
    found = re.findall(rf"({re.escape(str(data))}\S+): (is .*)", done.stdout)
    assert [path for path, _ in found] == [
        f"{data}/{name}" for name in ("train/cat/7.png", "train/dog/0.png", "val/dog/2.png")
    ]
    assert found[1][1].startswith("is a page of HTML or XML, but must be JPEG")
    threads = r"\d+ x \d+ threads, [\d.]+ s"
    assert re.search(rf"3 of 24 images \(16 for training, 8 for testing\) are damaged; {threads}", done.stdout)
    assert "3 of 24 images are damaged; replace or remove these files, or train with --skip-damaged" in done.stderr
    for path, _ in found:
        (data / path).write_bytes(png(40, 7))
    done = run([*launch, TRAIN, "check", data])
    assert done.returncode == 0, done.stderr
    assert re.search(r"none of 24 images \(16 for training, 8 for testing\) is damaged;", done.stdout)


def test_check_of_other_data(tmp_path):
    assert "train check has nothing to check; name" in sentence(run([TRAIN, "check"]), 2)
    said = sentence(run([TRAIN, "check", tmp_path]), 2)
    assert f"{tmp_path} has no train/ in it, so it is no imagefolder; pass --dataset" in said
    assert "data_batch_1.bin" in sentence(run([TRAIN, "check", tmp_path, "--dataset", "cifar10"]), 1)
    done = run([TRAIN, "check", "--dataset", "synthetic", "--samples", 64])
    assert done.returncode == 0 and "none of 80 images (64 for training, 16 for testing) is damaged" in done.stdout, done.stderr


def test_skip_damaged_goes_on_and_counts(tmp_path, data):
    said = sentence(train(data, tmp_path / "a", "--epochs", 1), 1)
    assert ", or pass --skip-damaged" in said
    done = train(data, tmp_path / "b", "--epochs", 2, "--skip-damaged")
    assert done.returncode == 0, done.stderr
    for epoch in (1, 2):
        assert f"epoch {epoch}: 2 damaged training images were replaced by the next ones" in done.stdout
    assert "1 of 8 test images is damaged and left out of the accuracy" in done.stdout
    skipped = re.findall(r"^train: skips (\S+): is ", done.stderr, re.M)
    assert sorted(skipped) == [f"{data}/{name}" for name in ("train/cat/7.png", "train/dog/0.png", "val/dog/2.png")]
    # Two ranks: each place is filled once, whichever rank has it.
    done = train(data, tmp_path / "c", "--epochs", 1, "--skip-damaged", "--checkpoint-dir", tmp_path / "c", ranks=2)
    assert done.returncode == 0, done.stderr
    assert "epoch 1: 2 damaged training images were replaced by the next ones" in done.stdout
    done = run([TRAIN, "eval", tmp_path / "c", "--data-dir", data, "--skip-damaged"])
    assert done.returncode == 0, done.stderr
    assert "1 of 8 test images is damaged and left out" in done.stdout and "of 7 images" in done.stdout


def test_a_resumed_training_skips_the_same(tmp_path, data):
    flags = ["--epochs", 2, "--skip-damaged", "--checkpoint-every", 1, "--checkpoint-keep", 9]
    whole = checksum(train(data, tmp_path / "a", *flags, ranks=2))
    first, *others = sorted((tmp_path / "a" / "checkpoints").glob("step-*"))
    assert first.stem == "step-000000001" and others
    for file in others:
        file.unlink()
    done = train(data, tmp_path / "a", *flags, "--resume", "auto", ranks=2)
    assert "epoch 1 after 8 of 16 images, step 1" in done.stdout
    assert checksum(done) == whole


def test_a_training_goes_on_when_the_damaged_files_were_removed(tmp_path, data):
    (data / "train" / "cat" / "7.png").write_bytes(png(40, 7))
    (data / "val" / "dog" / "2.png").write_bytes(png(40, 7))
    flags = ["--epochs", 2, "--checkpoint-every", 1, "--seed", 5]
    done = train(data, tmp_path / "o", *flags)
    sentence(done, 1)  # the page of HTML
    shutil.rmtree(tmp_path / "o")
    (data / "train" / "dog" / "0.png").write_bytes(png(40, 7))
    done = train(data, tmp_path / "o", *flags, "--max-steps", 6)
    assert done.returncode == 0, done.stderr
    (data / "train" / "dog" / "0.png").unlink()
    done = train(data, tmp_path / "o", *flags, "--resume", "auto")
    assert done.returncode == 0, done.stderr
    assert (
        "the data set has 15 training images, but had 16 when the checkpoint was saved: epoch 2 starts from its first image"
        in done.stdout
    )
    assert "epoch 2 after 0 of 15 images, step 6" in done.stdout
