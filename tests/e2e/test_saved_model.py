# SPDX-License-Identifier: Apache-2.0
"""cifar_net.pth opens in Python with torch.load's defaults and gives the same logits there."""

import numpy
import pytest
import torch
from conftest import BUILD, DDPRUN, run
from python_models import make_model


@pytest.mark.parametrize(
    ("model", "flags"),
    [
        ("linear", []),
        ("simple-cnn", []),
        ("netresdeep", []),
        ("netresdeep", ["--shared-blocks"]),
        ("resnet18", []),
        ("resnet18", ["--stem", "imagenet"]),
        ("resnet34", []),
        ("resnet50", []),
        ("resnet50", ["--stem", "imagenet"]),
    ],
)
def test_python_gives_the_same_logits(tmp_path, model, flags):
    done = run(
        [DDPRUN, "--standalone", "--nproc-per-node", "2", "train", "--model", model, *flags]
        + ["--dataset", "synthetic", "--batch-size", "4", "--max-steps", "2", "--lr", "0.001", "--no-eval"]
        + ["--output-dir", tmp_path],
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    saved = tmp_path / "cifar_net.pth"
    state = torch.load(saved)  # the defaults: weights_only=True
    assert isinstance(state, dict)

    python_model = make_model(
        model, shared_blocks="--shared-blocks" in flags, stem="imagenet" if "imagenet" in flags else "cifar"
    )
    python_model.load_state_dict(state)  # strict: every key, and no other
    python_model.eval()
    images = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(3))
    images.numpy().tofile(tmp_path / "images.f32")
    with torch.no_grad():
        expected = python_model(images).numpy()

    done = run(
        [BUILD / "tests" / "logits_probe", model, "shared" if "--shared-blocks" in flags else "unshared", saved]
        + [tmp_path / "images.f32", tmp_path / "logits.f32", *flags[1:]]
    )
    assert done.returncode == 0, done.stderr
    logits = numpy.fromfile(tmp_path / "logits.f32", dtype=numpy.float32).reshape(expected.shape)
    assert numpy.abs(logits - expected).max() < 1e-4
    assert numpy.abs(expected).max() > 1e-3  # not equal for being empty


def test_a_saved_model_has_no_training_state_of_torch_in_it(tmp_path):
    """Plain contiguous CPU tensors without gradients, so that any tool can read them."""
    done = run([DDPRUN, "--standalone", "train", "--dataset", "synthetic", "--max-steps", "0", "--output-dir", tmp_path])
    assert done.returncode == 0, done.stderr
    for name, tensor in torch.load(tmp_path / "cifar_net.pth").items():
        assert tensor.device.type == "cpu" and tensor.is_contiguous() and not tensor.requires_grad, name
