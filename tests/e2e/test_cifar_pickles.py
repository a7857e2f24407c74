# SPDX-License-Identifier: Apache-2.0
"""CIFAR as torchvision downloads it (cifar-10-batches-py, cifar-100-python) is the data set of the binary files, and a
pickle that wants to run something runs nothing."""

import os
import pickle
import struct

import numpy
import pytest
import torch
from conftest import TRAIN, run
from test_bad_input import assert_one_sentence

IMAGES = 40
TRAIN_FILES = [f"data_batch_{i}" for i in range(1, 6)]
SETTINGS = ["--model", "simple-cnn", "--batch-size", "8", "--max-steps", "6", "--no-eval"]


def random_images(seed, classes=10):
    random = numpy.random.default_rng(seed)
    return random.integers(classes, size=IMAGES), random.integers(256, size=(IMAGES, 3072), dtype=numpy.uint8)


def string(data):
    return b"U" + bytes([len(data)]) + data if len(data) < 256 else b"T" + struct.pack("<i", len(data)) + data


def python2_pickle(labels, pixels, labels_key=b"labels"):
    """Byte for byte what Python 2 wrote for the archive: protocol 2, strings as strings."""
    count = len(labels)
    array = b"cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85" + string(b"b") + b"\x87Rq\x09"
    array += b"(K\x01M" + struct.pack("<H", count) + b"M\x00\x0c\x86cnumpy\ndtype\nq\x0a" + string(b"u1")
    array += b"K\x00K\x01\x87Rq\x0b(K\x03" + string(b"|") + b"NNN" + 2 * (b"J" + struct.pack("<i", -1)) + b"K\x00tb"
    array += b"\x89" + string(pixels.tobytes()) + b"tb"
    entries = string(b"batch_label") + string(b"training batch 1 of 5")
    entries += string(labels_key) + b"]q\x05(" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    entries += string(b"data") + array
    entries += string(b"filenames") + b"](" + b"".join(string(b"a_%d.png" % i) for i in range(count)) + b"e"
    return b"\x80\x02}q\x01(" + entries + b"u."


def python3_pickle(labels, pixels, labels_key="labels", protocol=4):
    return pickle.dumps({labels_key: [int(label) for label in labels], "data": pixels}, protocol=protocol)


def fortran_pickle(labels, pixels):
    return python3_pickle(labels, numpy.asfortranarray(pixels))


def trained(folder, dataset, data):
    done = run([TRAIN, "--dataset", dataset, "--data-dir", data, *SETTINGS, "--output-dir", folder])
    assert done.returncode == 0, done.stderr
    return torch.load(folder / "cifar_net.pth")


def assert_same(one, other):
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("write", [python2_pickle, python3_pickle, fortran_pickle])
def test_cifar10_is_that_of_the_binary_files(tmp_path, write):
    binary, pickled = tmp_path / "binary", tmp_path / "root" / "cifar-10-batches-py"
    binary.mkdir()
    pickled.mkdir(parents=True)
    for seed, name in enumerate([*TRAIN_FILES, "test_batch"]):
        labels, pixels = random_images(seed)
        (binary / f"{name}.bin").write_bytes(numpy.column_stack([labels.astype(numpy.uint8), pixels]).tobytes())
        (pickled / name).write_bytes(write(labels, pixels))
        assert pickle.loads((pickled / name).read_bytes(), encoding="latin1")["data"].shape == (IMAGES, 3072)
    expected = trained(tmp_path / "1", "cifar10", binary)
    assert_same(trained(tmp_path / "2", "cifar10", tmp_path / "root"), expected)
    assert_same(trained(tmp_path / "3", "cifar10", pickled), expected)


def test_cifar100_is_that_of_the_binary_files(tmp_path):
    binary, pickled = tmp_path / "binary", tmp_path / "cifar-100-python"
    binary.mkdir()
    pickled.mkdir()
    for seed, name in enumerate(["train", "test"]):
        labels, pixels = random_images(seed, classes=100)
        records = numpy.column_stack([numpy.zeros(IMAGES, numpy.uint8), labels.astype(numpy.uint8), pixels])
        (binary / f"{name}.bin").write_bytes(records.tobytes())
        (pickled / name).write_bytes(python2_pickle(labels, pixels, labels_key=b"fine_labels"))
    (pickled / "meta").write_bytes(pickle.dumps({"fine_label_names": [f"class {i}" for i in range(100)]}, protocol=2))
    assert_same(trained(tmp_path / "2", "cifar100", tmp_path), trained(tmp_path / "1", "cifar100", binary))


class Harmful:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def truncated(data):
    return data[: len(data) // 2]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (truncated, ["ends in the middle"]),
        (lambda data: b"", ["data_batch_2"]),
        (lambda data: b"PK" + data, ["not a pickle"]),
        (lambda data: data.replace(b"K\x01M\x28\x00", b"K\x01M\x29\x00"), ["pixels for 41 images"]),
        (lambda data: data.replace(b"cnumpy\ndtype\n", b"cos\nsystem\n"), ["os.system", "nothing of it was run"]),
        (lambda data: data[:-1] + b"0.", ["instruction 48"]),
        (lambda data: data.replace(string(b"labels"), string(b"fables")), ["no labels"]),
        (lambda data: b"\x80\x02" + 3_000_000 * b"N" + b".", ["more than 1048576 values"]),
        (lambda data: b"\x80\x02" + b"]" + 1_000_000 * b"\x85" + b".", ["dict"]),
    ],
    ids=["cut", "empty", "zip", "count", "global", "operation", "key", "values", "nest"],
)
def test_damage_is_one_sentence(tmp_path, spoil, words):
    for seed, name in enumerate([*TRAIN_FILES, "test_batch"]):
        data = python2_pickle(*random_images(seed))
        (tmp_path / name).write_bytes(spoil(data) if name == "data_batch_2" else data)
    done = run([TRAIN, "--dataset", "cifar10", "--data-dir", tmp_path, *SETTINGS, "--output-dir", tmp_path / "out"])
    assert_one_sentence(done, 1, "data_batch_2", *words)


def test_a_pickle_that_calls_a_function_calls_nothing(tmp_path):
    mark = tmp_path / "mark"
    for name in [*TRAIN_FILES, "test_batch"]:
        (tmp_path / name).write_bytes(pickle.dumps({"data": Harmful(f"touch {mark}"), "labels": []}, protocol=2))
    done = run([TRAIN, "--dataset", "cifar10", "--data-dir", tmp_path, *SETTINGS, "--output-dir", tmp_path / "out"])
    assert_one_sentence(done, 1, "data_batch_1", "system", "nothing of it was run")
    assert not mark.exists()
