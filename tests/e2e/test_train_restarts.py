# SPDX-License-Identifier: Apache-2.0
"""`train` restarted by torchrun and by ddprun: the ranks meet again, and go on from what this very run has saved."""

import os
import shlex
import signal

import pytest
from conftest import DDPRUN, TRAIN, clean_environment, processes_of_this_session, run, start, torchrun_standalone, wait_for

SMALL = ["--model", "simple-cnn", "--dataset", "synthetic", "--samples", "64", "--batch-size", "4", "--no-eval"]


def first_attempt_fails(*words):
    """A worker that fails when it is started first, and is `words` afterwards."""
    quoted = shlex.join(str(word) for word in words)
    return ["sh", "-c", f'test "$TORCHELASTIC_RESTART_COUNT" = 0 && exit 7; exec {quoted}']


def workers():
    return [int(pid) for pid, words in processes_of_this_session() if words.startswith(TRAIN)]


def test_torchrun_restarts_a_training(tmp_path):
    """torchrun's agent serves the same TCPStore to all attempts."""
    more = ["--max-steps", "100000", "--epochs", "100000", "--checkpoint-every", "2", "--output-dir", tmp_path]
    command = [*torchrun_standalone(), "--nproc-per-node", "2", "--max-restarts", "1", "--no-python"]
    process = start([*command, TRAIN, *SMALL, *more], env=clean_environment(OMP_NUM_THREADS="1"))
    saved = tmp_path / "checkpoints"
    wait_for("a checkpoint", lambda: list(saved.glob("step-*.safetensors")) or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    victims = wait_for("both ranks", lambda: found if len(found := workers()) == 2 else None)
    os.kill(victims[1], signal.SIGKILL)
    wait_for("other workers", lambda: (len(workers()) == 2 and not set(victims) & set(workers())) or process.poll() is not None)
    newest = max(saved.glob("step-*.safetensors"))
    wait_for("later checkpoints", lambda: max(saved.glob("step-*.safetensors")) > newest or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    process.terminate()
    out, err = process.communicate(timeout=60)
    assert "goes on from" in out, (out, err)
    assert "two processes" not in err, err


@pytest.mark.parametrize("saves", [True, False], ids=["before its first save", "that saves none"])
def test_a_restart_leaves_an_older_runs_checkpoints_alone(tmp_path, saves):
    older = [DDPRUN, "--standalone", TRAIN, *SMALL, "--output-dir", tmp_path, "--checkpoint-every", "2"]
    assert run([*older, "--max-steps", "4", "--lr", "0.01"]).returncode == 0
    newer = [TRAIN, *SMALL, "--output-dir", tmp_path, "--max-steps", "3", "--lr", "0.02"]
    newer += ["--checkpoint-every", "2"] if saves else []
    done = run([DDPRUN, "--standalone", "--max-restarts", "1", *first_attempt_fails(*newer)])
    assert done.returncode == 0, done.stderr
    assert "goes on from" not in done.stdout, done.stdout
    assert "batch 3/3" in done.stdout, done.stdout


@pytest.mark.parametrize("launcher", ["ddprun", "torchrun"])
def test_a_run_of_the_same_name_with_other_settings_begins_anew(tmp_path, launcher, port):
    """As a job that is queued again: what counts is also what was trained."""
    if launcher == "ddprun":
        started = [DDPRUN, "--rdzv-id", "job7", "--rdzv-endpoint", f"127.0.0.1:{port}", "--max-restarts", "1"]
    else:
        started = [*torchrun_standalone(), "--rdzv-id", "job7", "--max-restarts", "1", "--no-python"]
    older = [TRAIN, *SMALL, "--output-dir", tmp_path, "--checkpoint-every", "2", "--max-steps", "4"]
    assert run([*started, *older], timeout=200).returncode == 0
    done = run([*started, *first_attempt_fails(*older, "--lr", "0.02")], timeout=200)
    assert done.returncode == 0, done.stderr
    assert "goes on from" not in done.stdout, done.stdout
    again = run([*started, *first_attempt_fails(*older, "--lr", "0.02")], timeout=200)
    assert again.returncode == 0, again.stderr
    # That one is of the same name and the same training.
    assert "goes on from" in again.stdout, again.stdout
