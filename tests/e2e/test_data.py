# SPDX-License-Identifier: Apache-2.0
"""The data sets from a shell: each can be trained with, a node holds one copy of a file, and damage is named."""

import gzip
import os
import pathlib
import re
import struct
import zlib

import pytest
from conftest import DDPRUN, TRAIN, clean_environment, processes_of_this_session, run, start, wait_for

SHORT = ["--max-steps", "2", "--batch-size", "4", "--log-every", "1", "--lr", "0.001"]
TWO_RANKS = [DDPRUN, "--standalone", "--nproc-per-node", "2", "train"]


def png(side, shade):
    """One colour, by the format's own chunks (https://www.w3.org/TR/png/)."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = (b"\0" + bytes([shade, shade // 2, 255 - shade]) * side) * side
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def make_image_folder(folder, of_each=8):
    for part in ("train", "val"):
        for label, name in enumerate(("cat", "dog")):
            (folder / part / name).mkdir(parents=True)
            for i in range(of_each):
                (folder / part / name / f"{i}.png").write_bytes(png(40, 100 * label + i))


def make_cifar10(folder, records=200):
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        pixels = os.urandom(3072)
        (folder / name).write_bytes(b"".join(bytes([i % 10]) + pixels for i in range(records)))


def make_cifar100(folder):
    for name in ("train.bin", "test.bin"):
        (folder / name).write_bytes(b"".join(bytes([i % 20, i % 100]) + os.urandom(3072) for i in range(100)))


def make_idx(folder, count=300, compressed=False):
    for part in ("train", "t10k"):
        images = struct.pack(">IIII", 2051, count, 28, 28) + os.urandom(count * 784)
        labels = struct.pack(">II", 2049, count) + bytes(i % 10 for i in range(count))
        for name, data in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
            if compressed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(data, 1))
            else:
                (folder / name).write_bytes(data)


@pytest.mark.parametrize(
    ("dataset", "make", "arguments"),
    [
        ("cifar10", make_cifar10, []),
        ("cifar100", make_cifar100, []),
        ("fashion-mnist", make_idx, []),
        ("idx", make_idx, []),
        ("imagefolder", make_image_folder, ["--loader-threads", "2"]),
        ("synthetic", None, ["--samples", "30", "--input-size", "48", "--num-classes", "7", "--model", "resnet18"]),
    ],
)
def test_every_data_set_can_be_trained_with(tmp_path, dataset, make, arguments):
    data, output = tmp_path / "data", tmp_path / "output"
    data.mkdir()
    if make:
        make(data)
        arguments = [*arguments, "--data-dir", data]
    done = run([TRAIN, "--dataset", dataset, *arguments, *SHORT, "--output-dir", output])
    assert done.returncode == 0, done.stderr
    assert "test accuracy" in done.stdout


@pytest.mark.parametrize(("dataset", "below"), [("idx", "MNIST/raw"), ("fashion-mnist", "FashionMNIST/raw"), ("idx", "")])
def test_idx_files_are_found_in_torchvisions_folders_and_with_dots_in_their_names(tmp_path, dataset, below):
    data = tmp_path / below
    data.mkdir(parents=True, exist_ok=True)
    make_idx(data, compressed=below == "")
    if not below:
        for file in list(data.iterdir()):
            file.rename(data / re.sub(r"-(idx\d)", r".\1", file.name))
        assert (data / "train-images.idx3-ubyte.gz").is_file()
    done = run([TRAIN, "--dataset", dataset, "--data-dir", tmp_path, *SHORT, "--output-dir", tmp_path / "o"])
    assert done.returncode == 0, done.stderr
    assert f"{dataset}: 300 training and 300 test images" in done.stdout


@pytest.mark.parametrize(
    ("dataset", "advice"),
    [
        ("idx", "no such file, nor train-images.idx3-ubyte, nor either with .gz; for --dataset idx pass as --data-dir"),
        ("cifar100", "run deploy/fetch-data.sh --dataset cifar100, or pass --data-dir"),
    ],
)
def test_the_advice_is_for_the_data_set_that_was_asked_for(tmp_path, dataset, advice):
    said = sentence(run([TRAIN, "--dataset", dataset, "--data-dir", tmp_path]), 1)
    assert advice in said and "fashion" not in said


def mappings(pid, name):
    """Of the mapped files whose path has `name` in it: {inode: {field: kB}}."""
    found, fields = {}, None
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            words = line.split()
            fields = found.setdefault(words[4], {}) if len(words) > 5 and name in words[5] else None
        elif fields is not None and (match := re.match(r"(\w+): +(\d+) kB", line)):
            fields[match[1]] = fields.get(match[1], 0) + int(match[2])
    return found


@pytest.mark.parametrize(
    ("dataset", "make", "name", "files"),
    [
        ("cifar10", lambda folder: make_cifar10(folder, 2000), "data_batch_", 5),
        ("idx", lambda folder: make_idx(folder, 5000, compressed=True), "/unpacked/", 2),
    ],
)
def test_two_ranks_share_one_copy_of_a_file(tmp_path, dataset, make, name, files):
    data = tmp_path / "data"
    data.mkdir()
    make(data)
    env = clean_environment(XDG_CACHE_HOME=str(tmp_path / "cache"))
    arguments = ["--dataset", dataset, "--data-dir", data, "--epochs", "100000", "--batch-size", "2", "--no-eval"]
    training = start([*TWO_RANKS, *arguments, "--log-every", "1", "--output-dir", tmp_path], env=env)
    try:
        assert wait_for("a step", lambda: "loss" in training.stdout.readline(), 120)
        ranks = [pid for pid, line in processes_of_this_session() if line.split()[0].endswith("train")]
        assert len(ranks) == 2
        seen = [mappings(pid, name) for pid in ranks]
    finally:
        training.terminate()
        training.communicate(timeout=60)
    assert len(seen[0]) == files and seen[0].keys() == seen[1].keys()
    for rank in seen:
        # What a rank's share is of the pages that it has: a half where both have all of them.
        resident = sum(fields["Rss"] for fields in rank.values())
        share = sum(fields["Pss"] for fields in rank.values())
        assert resident > 1000 and share < 0.75 * resident, rank
    if "unpacked" in name:
        copies = [p for p in (tmp_path / "cache" / "ddprun" / "data" / "unpacked").iterdir() if p.suffix != ".lock"]
        assert len(copies) == 2


def sentence(done, code):
    assert done.returncode == code, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_a_damaged_image_in_the_middle_is_named(tmp_path):
    make_image_folder(tmp_path, of_each=20)
    victim = tmp_path / "train" / "dog" / "13.png"
    victim.write_bytes(victim.read_bytes()[:-40])
    done = run([TRAIN, "--dataset", "imagefolder", "--data-dir", tmp_path, "--batch-size", "4", "--output-dir", tmp_path / "o"])
    assert re.search(f"{victim}: is damaged .*; replace or remove", sentence(done, 1))


def test_a_label_out_of_range_is_named_with_its_record(tmp_path):
    make_cifar100(tmp_path)
    records = bytearray((tmp_path / "train.bin").read_bytes())
    records[3074 * 42 + 1] = 100
    (tmp_path / "train.bin").write_bytes(records)
    done = run([TRAIN, "--dataset", "cifar100", "--data-dir", tmp_path])
    assert re.search(r"train\.bin: label 100 of image 42 is not below 100", sentence(done, 1))


def test_more_ranks_than_samples(tmp_path):
    done = run([*TWO_RANKS, "--dataset", "synthetic", "--samples", "1", "--output-dir", tmp_path])
    assert done.returncode != 0
    assert re.search(r"1 sample cannot be shared by 2 ranks; start no more ranks", done.stderr), done.stderr


def test_a_folder_with_classes_of_other_names_is_no_set_for_the_model(tmp_path):
    make_image_folder(tmp_path / "data")
    flags = ["--dataset", "imagefolder", "--data-dir", tmp_path / "data", "--input-size", "32"]
    command = [TRAIN, *flags, "--batch-size", "4", "--output-dir", tmp_path / "o", "--checkpoint-every", "4"]
    assert run([*command, "--epochs", 1]).returncode == 0
    for part in ("train", "val"):  # now "dog" is the first one
        (tmp_path / "data" / part / "cat").rename(tmp_path / "data" / part / "zebra")
    model = tmp_path / "o" / "checkpoints"
    done = run([TRAIN, "eval", model, *flags])
    assert done.returncode == 2, done
    assert " is for other classes: number 0 is 'cat' there, but 'dog' in --dataset imagefolder; choose the data set" in done.stderr
    done = run([*command, "--epochs", 2, "--resume", "auto"])
    assert done.returncode != 0, done
    assert " is of other classes: number 0 is 'cat' there and 'dog' in this training's data" in done.stderr
