# SPDX-License-Identifier: Apache-2.0
"""Weights as other programs save and publish them: each is read, or named for what it is."""

import argparse
import gzip
import json

import numpy
import pytest
import safetensors.torch
import torch
from conftest import TRAIN, run
from python_models import make_model
from test_bad_input import assert_one_sentence

MODEL = ["--model", "netresdeep", "--dataset", "synthetic"]


def make_state():
    torch.manual_seed(3)
    return {name: tensor.detach() for name, tensor in make_model("netresdeep").state_dict().items()}


STATE = make_state()


def with_prefix(prefix):
    return {prefix + name: tensor for name, tensor in STATE.items()}


def checkpoint(key, state):
    """What a training program keeps beside the weights."""
    model = make_model("netresdeep")
    optimizer = torch.optim.Adam(model.parameters())
    sum(parameter.sum() for parameter in model.parameters()).backward()
    optimizer.step()
    return {
        "epoch": 3,
        "args": argparse.Namespace(lr=0.1, milestones=[30, 60], data=None),
        "best": numpy.float64(0.5),
        "optimizer": optimizer.state_dict(),
        key: state,
    }


class Settings(dict):
    """As Lightning has its hyperparameters: a dict of a class of its own."""


def old_save(what, path):
    torch.save(what, path, _use_new_zipfile_serialization=False)


def save_shards(folder, save, name, suffix):
    folder.mkdir()
    parts = {}
    for i, (tensor, value) in enumerate(STATE.items()):
        parts.setdefault(f"{name}-{i % 2 + 1:05}-of-00002{suffix}", {})[tensor] = value
    for part, tensors in parts.items():
        save(tensors, folder / part)
    files = {tensor: part for part, tensors in parts.items() for tensor in tensors}
    index = {"metadata": {"total_size": 1}, "weight_map": files}
    (folder / f"{name}{suffix}.index.json").write_text(json.dumps(index))


def save_bin(folder):
    folder.mkdir()
    torch.save(STATE, folder / "pytorch_model.bin")


def python2_save(path):
    """As PyTorch 0.3 in Python 2 wrote it, by the same pickles: an OrderedDict by its items, and _rebuild_tensor."""

    def text(word):
        return b"U" + bytes([len(word)]) + word.encode()

    def number(value):
        return b"J" + value.to_bytes(4, "little")

    items = b""
    for name, tensor in STATE.items():
        kind = {torch.float32: "FloatStorage", torch.int64: "LongStorage"}[tensor.dtype]
        storage = b"(" + text("storage") + b"ctorch\n" + kind.encode() + b"\n" + text(name) + text("cpu")
        storage += number(tensor.numel()) + b"NtQ"
        sizes, strides = (b"(" + b"".join(map(number, values)) + b"t" for values in (tensor.shape, tensor.stride()))
        items += b"](" + text(name) + b"ctorch._utils\n_rebuild_tensor\n(" + storage + number(0) + sizes + strides + b"tRe"
    start = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}" + text("little_endian") + b"\x88s."
    keys = b"\x80\x02](" + b"".join(map(text, STATE)) + b"e."
    data = b"".join(value.numel().to_bytes(8, "little") + value.numpy().tobytes() for value in STATE.values())
    path.write_bytes(start + b"\x80\x02ccollections\nOrderedDict\n](" + items + b"e\x85R." + keys + data)
    assert all(torch.equal(value, STATE[name]) for name, value in torch.load(path, weights_only=False).items())


PUBLISHED = {
    "plain": lambda path: torch.save(STATE, path),
    "data parallel": lambda path: torch.save(with_prefix("module."), path),
    "compiled": lambda path: torch.save(with_prefix("_orig_mod."), path),
    "compiled, data parallel": lambda path: torch.save(with_prefix("_orig_mod.module."), path),
    "data parallel, compiled": lambda path: safetensors.torch.save_file(with_prefix("module._orig_mod."), path),
    "compiled blocks": lambda path: torch.save(
        {name.replace("resblocks.", "resblocks._orig_mod."): tensor for name, tensor in STATE.items()}, path
    ),
    "parameters": lambda path: torch.save(make_parameters(), path),
    "a training's": lambda path: torch.save(checkpoint("state_dict", with_prefix("module.")), path),
    "a training's model_state_dict": lambda path: torch.save(checkpoint("model_state_dict", STATE), path),
    "a training's model": lambda path: torch.save(checkpoint("model", STATE), path),
    "a training's net": lambda path: torch.save(checkpoint("net", STATE), path),
    "Lightning": lambda path: torch.save(
        {
            "state_dict": with_prefix("model."),
            "pytorch-lightning_version": "2.6.6",
            "loops": {"fit_loop": {"state_dict": {}}},
            "hyper_parameters": Settings(lr=0.1),
        },
        path,
    ),
    "before 1.6": lambda path: old_save(STATE, path),
    "a training's before 1.6": lambda path: old_save(checkpoint("state_dict", with_prefix("module.")), path),
    "Python 2": python2_save,
    "no counters": lambda path: torch.save({k: v for k, v in STATE.items() if not k.endswith("_tracked")}, path),
    "pytorch_model.bin": save_bin,
    "safetensors in parts": lambda path: save_shards(path, safetensors.torch.save_file, "model", ".safetensors"),
    "pytorch_model.bin in parts": lambda path: save_shards(path, torch.save, "pytorch_model", ".bin"),
}


def make_parameters():
    model = make_model("netresdeep")
    model.load_state_dict(STATE)
    return model.state_dict(keep_vars=True)


@pytest.mark.parametrize("kind", PUBLISHED)
def test_it_is_read(tmp_path, kind):
    path = tmp_path / "weights"
    PUBLISHED[kind](path)
    done = run([TRAIN, "export", path, "--format", "pth", "--output", tmp_path / "state.pth", *MODEL])
    assert done.returncode == 0, done.stderr
    state = torch.load(tmp_path / "state.pth")
    assert state.keys() == STATE.keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in STATE.items())


def test_a_training_starts_from_it(tmp_path):
    old_save(checkpoint("state_dict", with_prefix("module.")), tmp_path / "model_best.pth.tar")
    start = ["--init-from", tmp_path / "model_best.pth.tar", "--max-steps", "0", "--no-eval"]
    done = run([TRAIN, *MODEL, *start, "--output-dir", tmp_path])
    assert done.returncode == 0, done.stderr
    state = torch.load(tmp_path / "cifar_net.pth")
    assert all(torch.equal(state[name], tensor) for name, tensor in STATE.items())


def bad_index(path, part):
    path.mkdir()
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": part}}))


OTHERS = {
    "a whole model": (
        lambda path: torch.save(make_model("netresdeep"), path),
        "it holds a whole python_models.NetResDeep instead of its weights; save model.state_dict",
    ),
    "a whole model before 1.6": (
        lambda path: old_save(make_model("netresdeep"), path),
        "it holds a whole python_models.NetResDeep instead",
    ),
    "a training's whole model": (
        lambda path: torch.save(checkpoint("model", make_model("netresdeep")), path),
        "it holds a whole python_models.NetResDeep instead",
    ),
    "TorchScript": (
        lambda path: torch.jit.save(torch.jit.script(make_model("netresdeep")), path),
        "it holds a TorchScript program; pass it as --model-file",
    ),
    "cut off before 1.6": (
        lambda path: (old_save(STATE, path), path.write_bytes(path.read_bytes()[:-9])),
        "it is cut off",
    ),
    "other names": (lambda path: torch.save({"weights": STATE}, path), "something else than names and tensors"),
    "a pointer of Git LFS": (
        lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
        "is a pointer of Git LFS; get the weights with git lfs pull",
    ),
    "a web page": (lambda path: path.write_text("<!DOCTYPE html><html></html>"), "is a web page"),
    "gzip": (lambda path: path.write_bytes(gzip.compress(b"weights")), "is compressed by gzip; unpack it"),
    "HDF5": (lambda path: path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(90)), "is an HDF5 file"),
    "a part that is missing": (
        lambda path: bad_index(path, "model-00001-of-00002.safetensors"),
        "00001-of-00002.safetensors is not there",
    ),
    "a part elsewhere": (lambda path: bad_index(path, "../../secret"), "is no name of a file beside it"),
    "another model's weights": (
        lambda path: torch.save(with_prefix("module.layer1."), path),
        "missing: conv1.weight",
        "unexpected: module.layer1.",
    ),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_what_it_is_instead_is_named(tmp_path, kind):
    save, *words = OTHERS[kind]
    save(tmp_path / "weights")
    done = run([TRAIN, "export", tmp_path / "weights", "--format", "pth", "--output", tmp_path / "state.pth", *MODEL])
    assert_one_sentence(done, 1, str(tmp_path / "weights"), *words)
