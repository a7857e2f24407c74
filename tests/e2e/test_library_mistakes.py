# SPDX-License-Identifier: Apache-2.0
"""Mistakes in a program with libddprun end with one sentence that speaks of the library: not of `train`, nor of Python."""

import re
import signal

import pytest
from conftest import BUILD, DDPRUN, run, start

PROGRAM = BUILD / "tests/mistaken_trainer"

DIFFER = 'the parameters of "net" differ between rank 0 and rank 1 after step {}: not all of their gradients were averaged; make the forward '
SENTENCES = {
    "no-forward": DIFFER.format(1),
    "no-forward-late": DIFFER.format(3),
    "twice": DIFFER.format(1),
    "unused": DIFFER.format(1),
    "unused-unchecked": "a parameter got no gradient in the backward before this forward, .*; set find_unused_parameters in ",
    "outside": "a parameter got a gradient after it was counted as done in this step: it is used outside of Forward(), or .*; compute ",
    "no-advance": "Checkpoints::EndStep() got step 0 after step 0; call EpochSampler::Advance() before it, or go through Checkpoints::Epochs(), ",
    "early-end": "Checkpoints::EndStep() came after a backward whose gradients no optimizer has applied; call it once for each step of ",
    "no-finish-of-parts": "step 3 is not saved: the training has ended without Checkpoints::Finish(), which collects the parts of ",
    "second-checkpoints": "this process has a Checkpoints already, and can have one at a time; let that one track all, or ",
    "nccl-on-cpu": "the backend nccl reduces on GPUs, but the device is cpu; choose the backend gloo, or the device cuda",
}


def mistaken(what, folder):
    return run([DDPRUN, "--standalone", "--nproc-per-node", 2, PROGRAM, what, folder], timeout=60)


@pytest.mark.parametrize("what", ["none", "zero-grad"])  # the latter by the optimizer, as in Python
def test_without_a_mistake_it_ends_well(what, tmp_path):
    done = mistaken(what, tmp_path / "run")
    assert done.returncode == 0, done


def test_what_is_not_finished_is_saved_all_the_same(tmp_path):
    done = mistaken("no-finish", tmp_path / "run")
    assert done.returncode == 0 and [path.name for path in (tmp_path / "run").glob("step-*")] == ["step-000000003.safetensors"], done


@pytest.mark.parametrize("what", SENTENCES)
def test_it_is_named(tmp_path, what):
    done = mistaken(what, tmp_path / "run")
    assert done.returncode not in (0, 124), done
    sentence = re.escape(SENTENCES[what]).replace(re.escape(".*"), ".*")
    (line,) = {text for text in re.findall(r"mistaken_trainer: (.*)", done.stderr)}
    assert re.match(sentence, line), line
    assert not re.search(r"--[a-z]|\btrain\b|torch\.|\.py", line.split(";")[-1]), line


def test_a_signal_during_a_step_names_the_program(tmp_path):
    process = start([PROGRAM, "hang", tmp_path / "run"])
    assert process.stdout.readline() == "hangs\n"
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM, errors
    assert "mistaken_trainer: ended by SIGTERM while it waited for other ranks or for a step's end" in errors
