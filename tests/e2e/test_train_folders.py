# SPDX-License-Identifier: Apache-2.0
"""What a training does with its folders: two in one, folders that cannot be written, checkpoints that cannot be read, and
--max-steps over a resume."""

import fcntl
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


@pytest.mark.parametrize("name", ["cifar_net.pth", "cifar_net.pth.json", "summary.json"])
def test_a_fifo_in_the_place_of_a_result_is_found_before_training(tmp_path, name):
    os.mkfifo(tmp_path / name)
    done = run([TRAIN, *SMALL, "--max-steps", "1", "--output-dir", tmp_path])
    one_sentence(done, 2, f"{tmp_path}/{name}, which the results are written to, is not a regular file; remove it")
    assert os.listdir(tmp_path) == [name]


def test_a_fifo_in_the_place_of_the_metrics_costs_them_alone(tmp_path):
    os.mkfifo(tmp_path / "metrics.jsonl")
    done = run([TRAIN, *SMALL, "--max-steps", "1", "--output-dir", tmp_path])
    one_sentence(done, 0, f"metrics cannot be written to {tmp_path}/metrics.jsonl: it is not a regular file; training goes on")
    assert (tmp_path / "summary.json").is_file() and (tmp_path / "metrics.jsonl").is_fifo()


def test_a_fifo_in_the_place_of_the_log_of_samples_is_found_before_training(tmp_path):
    os.mkfifo(tmp_path / "samples-0.jsonl")
    done = run([TRAIN, *SMALL, "--max-steps", "1", "--log-samples", "--output-dir", tmp_path])
    one_sentence(done, 1, f"cannot write {tmp_path}/samples-0.jsonl: it is not a regular file; remove it")
    assert not (tmp_path / "cifar_net.pth").exists()


def test_who_may_only_read_the_lock_keeps_no_training_out(tmp_path):
    (tmp_path / "training.lock").write_text("{}")
    (tmp_path / "training.lock").chmod(0o644)
    with open(tmp_path / "training.lock") as reader:
        fcntl.flock(reader, fcntl.LOCK_EX)
        done = run([TRAIN, *SMALL, "--max-steps", "1", "--output-dir", tmp_path])
    assert (done.returncode, done.stderr) == (0, ""), done


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
