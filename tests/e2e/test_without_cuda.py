# SPDX-License-Identifier: Apache-2.0
"""GPU support can be left out: the build does without CUDA, and train without the module."""

import os
import pathlib
import shutil

from conftest import TRAIN, run

REPO = pathlib.Path(__file__).resolve().parents[2]
SHORT = ["--dataset", "synthetic", "--model", "simple-cnn", "--max-steps", "1", "--no-eval"]


def test_a_build_without_cuda_has_no_target_that_needs_it(tmp_path):
    done = run(
        ["cmake", "-S", REPO, "-B", tmp_path, "-G", "Ninja", "-DDDPRUN_WITH_CUDA=OFF", "-DDDPRUN_WITH_TESTS=OFF"]
        + [f"-DDDPRUN_TORCH_DIR={os.environ['DDPRUN_TORCH_DIR']}"],
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "(CUDA: OFF)" in done.stdout, done.stdout
    # No source asks whether there is CUDA, so the objects are those of a build with it: what differs is what is built.
    plan = run(["ninja", "-C", tmp_path, "-t", "commands", "train"], timeout=60)
    assert plan.returncode == 0, plan.stderr
    assert "libddprun_worker_distributed.a" in plan.stdout and "cuda_backend" not in plan.stdout
    assert "libtorch_cuda" not in (tmp_path / "build.ninja").read_text()


def test_train_needs_no_module_on_a_cpu(tmp_path):
    alone = pathlib.Path(shutil.copy(TRAIN, tmp_path / "train"))
    done = run([alone, *SHORT, "--device", "cpu", "--output-dir", tmp_path / "out"])
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "cifar_net.pth").is_file()
