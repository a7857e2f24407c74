# SPDX-License-Identifier: Apache-2.0
"""Names that are not UTF-8, as old archives and Latin-1 disks have them: of classes, of data and of every output."""

import json
import os
import signal

import numpy as np
import pytest
from conftest import BUILD, DDPRUN, TRAIN, run, start, wait_for, worker_of
from PIL import Image

ODD = os.fsdecode(b"caf\xe9")
SHOWN = "caf\\xe9"
LIBRARY = BUILD / "tests/two_networks"


def ran(*command):
    """Its output; that may have the bytes of the names."""
    done = run(command, errors="surrogateescape")
    assert done.returncode == 0, done
    return done.stdout + done.stderr


def settings(root):
    flags = ["--dataset", "imagefolder", "--data-dir", root / "data", "--input-size", "32", "--model", "simple-cnn"]
    return [*flags, "--batch-size", "2", "--checkpoint-every", "1"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A training with such names everywhere, made in two parts."""
    root = tmp_path_factory.mktemp("odd") / ODD
    for part in ("train", "val"):
        for shade, name in enumerate(("a", ODD, os.fsdecode(b"caf\xe8"))):
            folder = root / "data" / part / name
            folder.mkdir(parents=True)
            for i in range(4):
                Image.fromarray(np.full((32, 32, 3), 80 * shade, np.uint8)).save(folder / f"{ODD}{i}.png")
    flags = [*settings(root), "--output-dir", root / "run"]
    first = ran(DDPRUN, "--standalone", "--nproc-per-node", 2, TRAIN, *flags, "--max-steps", "2")
    assert "is not saved" not in first, first
    second = ran(DDPRUN, "--standalone", "--nproc-per-node", 2, TRAIN, *flags, "--max-steps", "4", "--resume", "auto")
    return root, first, second


def test_a_training_is_saved_and_goes_on(runs):
    root, _, second = runs
    assert "goes on from" in second and "step 2" in second, second
    assert (root / "run/checkpoints/step-000000004.safetensors").is_file()
    assert json.loads((root / "run/summary.json").read_text())["steps"] == 2  # of the second part
    assert len((root / "run/metrics.jsonl").read_text().splitlines()) > 1
    assert (root / "run/model.pth").is_file()


def test_a_restart_of_its_own_finds_the_checkpoint(runs):
    """By the settings that are saved with it, in which the names are."""
    root, *_ = runs
    flags = [*settings(root), "--output-dir", root / "killed", "--resume", "restart", "--max-steps", "60", "--epochs", "30"]
    agent = start([DDPRUN, "--standalone", "--max-restarts", "1", TRAIN, *flags], errors="surrogateescape")
    wait_for("a checkpoint", lambda: list((root / "killed").glob("checkpoints/step-*.safetensors")))
    os.kill(worker_of(0), signal.SIGKILL)
    output, errors = agent.communicate(timeout=60)
    assert agent.returncode == 0 and "goes on from" in output, output + errors


def test_the_classes_keep_names_of_their_own(runs):
    root, *_ = runs
    scores = ran(TRAIN, "eval", root / "run/model.pth", "--data-dir", root / "data")
    assert "accuracy" in scores, scores
    ran(TRAIN, "export", root / "run/model.pth", "--format", "hf", "--output", root / "hf")
    labels = json.loads((root / "hf/config.json").read_text())["id2label"]
    assert sorted(labels.values()) == ["a", "caf\\xe8", SHOWN]


def test_runs_are_drawn(runs):
    root, *_ = runs
    ran(TRAIN, "plot", root / "run", "--output", root / "curves.svg")
    assert "<svg" in (root / "curves.svg").read_text()


def test_a_program_with_the_library_goes_on(tmp_path):
    folder = tmp_path / ODD
    first = ran(DDPRUN, "--standalone", "--nproc-per-node", 2, LIBRARY, folder, "go", "1")
    second = ran(DDPRUN, "--standalone", "--nproc-per-node", 2, LIBRARY, folder, "go", "2")
    assert "goes on from" not in first and "goes on from" in second, second
