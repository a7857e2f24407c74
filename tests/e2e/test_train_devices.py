# SPDX-License-Identifier: Apache-2.0
"""train where a driver shows devices that LibTorch cannot use, as an old one does: it says so, and takes the CPU only where it
may choose. The driver is tests/testing/fake_cuda_driver.c; LibTorch's CUDA library is the real one, which loads without a GPU."""

import re

import pytest

from conftest import BIN, BUILD, DDPRUN, TRAIN, clean_environment, run

FAKE_DRIVER = BUILD / "tests" / "fake_cuda"
SMALL = ["--dataset", "synthetic", "--samples", "32", "--batch-size", "8", "--model", "linear", "--max-steps", "2"]

needs_module = pytest.mark.skipif(not (BIN / "libddprun_cuda.so").exists(), reason="this build has no GPU support")


def with_driver(devices):
    return clean_environment(LD_LIBRARY_PATH=str(FAKE_DRIVER), FAKE_CUDA_DEVICES=devices)


def note(devices, rank=0):
    """Also what shows that the module was opened before anything asked ATen about CUDA: else the reason were another."""
    shown = f"{devices} CUDA device{'s' if devices > 1 else ''}"
    return (rf"the CPU is used, though the driver shows {shown} to rank {rank}: LibTorch cannot use any "
            r"\(CUDA 13\.\d+, [^)]*NCCL [\d.]+\); update the driver, or choose the CPU")


@needs_module
def test_the_cpu_is_not_taken_silently(tmp_path):
    done = run([TRAIN, *SMALL, "--checkpoint-every", "2", "--output-dir", tmp_path], env=with_driver("1,2"))
    assert done.returncode == 0, done.stderr
    assert len(re.findall(note(2), done.stdout)) == 1, done.stdout
    done = run([TRAIN, "eval", tmp_path / "checkpoints"], env=with_driver("1"))
    assert done.returncode == 0, done.stderr
    assert len(re.findall(note(1), done.stdout)) == 1, done.stdout


@needs_module
def test_of_several_ranks_one_says_it(tmp_path):
    command = [DDPRUN, "--standalone", "--nproc-per-node", "2", "train", *SMALL, "--output-dir", tmp_path]
    done = run(command, env=with_driver("1"))
    assert done.returncode == 0, done.stderr
    assert len(re.findall(note(1), done.stdout)) == 1, done.stdout


@needs_module
def test_what_was_asked_for_is_not_replaced(tmp_path):
    for what, choice in (("device", "cuda"), ("backend", "nccl")):
        done = run([TRAIN, *SMALL, f"--{what}", choice, "--output-dir", tmp_path], env=with_driver("1"))
        assert done.returncode == 1, done.stdout
        assert re.search(rf"train: the {what} {choice} needs a CUDA device.*; the driver shows 1 CUDA device to rank 0, but "
                         r"LibTorch cannot use any \(.*\); update the driver, or choose the CPU", done.stderr), done.stderr


def test_gloo_on_the_cpu_of_a_machine_with_a_gpu_is_reported(tmp_path):
    done = run([TRAIN, *SMALL, "--backend", "gloo", "--output-dir", tmp_path], env=with_driver("1"))
    assert done.returncode == 0, done.stderr
    assert ("the CPU is used, though the driver shows 1 CUDA device to rank 0: the device auto means the CPU with the backend gloo; "
            "choose the device cuda to use a GPU") in done.stdout
    done = run([TRAIN, *SMALL, "--device", "cpu", "--output-dir", tmp_path], env=with_driver("1"))
    assert done.returncode == 0 and "though" not in done.stdout, done.stdout + done.stderr


def test_a_driver_that_does_not_start_is_not_a_machine_without_one(tmp_path):
    """Error 802: GPUs that NVSwitch connects, without their fabric manager."""
    broken = clean_environment(LD_LIBRARY_PATH=str(FAKE_DRIVER), FAKE_CUDA_ERROR="802")
    why = "the NVIDIA driver fails with error 802 (system not yet initialized); see what nvidia-smi says"
    done = run([TRAIN, *SMALL, "--output-dir", tmp_path], env=broken)
    assert done.returncode == 0 and done.stdout.count(f"the CPU is used: {why}") == 1, done.stdout + done.stderr
    done = run([TRAIN, *SMALL, "--device", "cuda", "--output-dir", tmp_path], env=broken)
    assert done.returncode == 1 and f"train: the device cuda needs a CUDA device; {why}" in done.stderr, done.stderr
    done = run([TRAIN, *SMALL, "--output-dir", tmp_path], env=with_driver(""))
    assert done.returncode == 0 and "the CPU is used: an NVIDIA driver is installed, but shows no CUDA device" in done.stdout
    done = run([TRAIN, *SMALL, "--output-dir", tmp_path], env={**with_driver(""), "CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 0 and "the CPU is used" not in done.stdout, done.stdout
