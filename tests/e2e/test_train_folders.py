# SPDX-License-Identifier: Apache-2.0
"""What a training does with its folders: two in one, folders that cannot be written, checkpoints that cannot be read, and
--max-steps over a resume."""

import os
import re
import signal

import pytest
from conftest import DDPRUN, TRAIN, run, start, wait_for

SMALL = ["--model", "simple-cnn", "--dataset", "synthetic", "--samples", "64", "--batch-size", "4", "--no-eval"]
ENDLESS = [*SMALL, "--epochs", "100000", "--log-samples"]


def one_sentence(done, code, *says):
    assert done.returncode == code, (done.stdout, done.stderr)
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    for word in says:
        assert word in done.stderr, done.stderr


@pytest.mark.parametrize("shared", ["--output-dir", "--checkpoint-dir"])
def test_two_trainings_in_one_folder(tmp_path, shared):
    def words(name):
        folders = {"--output-dir": tmp_path / name, "--checkpoint-dir": tmp_path / name / "saved", shared: tmp_path / "both"}
        return [word for pair in folders.items() for word in pair]

    first = start([TRAIN, *ENDLESS, *words("a")])
    wait_for("a step", lambda: list(tmp_path.glob("*/samples-0.jsonl")) or first.poll() is not None)
    second = run([TRAIN, *SMALL, *words("b")])
    one_sentence(second, 1, f"{tmp_path}/both is in use by another training (process {first.pid} on host ")
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=60)
    assert run([TRAIN, *SMALL, "--max-steps", "1", *words("b")]).returncode == 0


def test_a_folder_that_takes_no_files_is_found_before_training(tmp_path):
    done = run([TRAIN, *SMALL, "--output-dir", "/proc/self"])
    one_sentence(done, 2, "--output-dir /proc/self cannot be written to: ")
    (tmp_path / "cifar_net.pth").mkdir()
    one_sentence(run([TRAIN, *SMALL, "--output-dir", tmp_path]), 2, "cifar_net.pth, which the results are written to")


def test_a_damaged_only_checkpoint_is_not_called_another_trainings(tmp_path):
    more = ["--checkpoint-every", "2", "--output-dir", tmp_path, "--resume", "auto"]
    assert run([TRAIN, *SMALL, *more, "--max-steps", "2"]).returncode == 0
    (only,) = (tmp_path / "checkpoints").glob("step-*.safetensors")
    os.truncate(only, only.stat().st_size - 1)
    done = run([TRAIN, *SMALL, *more, "--max-steps", "3"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("passed over") == 1, done.stdout
    assert f"no checkpoint in {tmp_path}/checkpoints is good, the newest of step 2; training begins anew" in done.stdout
    assert "earlier training" not in done.stdout, done.stdout


def last_step(folder):
    return max(int(re.search(r"step-(\d+)", path.name).group(1)) for path in folder.glob("checkpoints/step-*"))


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
def test_max_steps_are_steps_with_another_number_of_ranks_too(tmp_path, before, after):
    more = ["--epochs", "100", "--checkpoint-every", "1", "--output-dir", tmp_path, "--resume", "auto"]

    def train(ranks, steps):
        done = run([DDPRUN, "--standalone", "--nproc-per-node", ranks, TRAIN, *SMALL, *more, "--max-steps", steps])
        assert done.returncode == 0, done.stderr
        return done.stdout

    train(before, 10)
    assert last_step(tmp_path) == 10
    train(after, 15)
    assert last_step(tmp_path) == 15
    said = train(before, 12)
    assert last_step(tmp_path) == 15
    assert "the training is complete at step 15 of --max-steps 12: no step is left" in said, said
