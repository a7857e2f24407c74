# SPDX-License-Identifier: Apache-2.0
"""`train tune` finds settings for this machine, and the command that it prints works."""

import re
import shlex

import pytest
from conftest import DDPRUN, TRAIN, run

SMALL = ["--model", "simple-cnn", "--dataset", "synthetic", "--samples", "64"]


def tune(*arguments, **options):
    return run([TRAIN, "tune", "--time-limit", "60", *arguments], **options)


def test_the_command_that_it_prints_trains(tmp_path):
    odd = tmp_path / "it's a folder"
    done = tune(*SMALL, "--output-dir", odd)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == "batch size channels-last loader threads images a second".split()
    rows = [line.split() for line in lines[1:] if re.match(r" +\d", line)]
    assert [int(row[0]) for row in rows[:4]] == [8, 16, 32, 64], "the data set has 64 images"
    assert all(float(row[3]) > 0 for row in rows)
    assert {row[1] for row in rows} == {"no", "yes"} and len({row[2] for row in rows}) > 1
    assert "largest batch that was tried and fits: 64" in lines
    (command,) = [line for line in lines if line.startswith("train ")]
    assert not odd.exists(), "it writes nothing"
    words = shlex.split(command)
    assert words[1 : 1 + len(SMALL)] == SMALL and "--batch-size" in words
    done = run([TRAIN, *words[1:], "--max-steps", "1", "--no-eval"])
    assert done.returncode == 0, done.stderr
    assert (odd / "cifar_net.pth").exists()


@pytest.mark.nightly
def test_memory_that_is_not_there_ends_the_search_and_not_the_program():
    limited = ["prlimit", f"--as={5 << 29}", "--", TRAIN, "tune", "--time-limit", "240", "--model", "simple-cnn"]
    done = run([*limited, "--dataset", "synthetic", "--samples", "128", "--input-size", "512"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "does not fit" in done.stdout, done.stdout
    largest = int(re.search(r"fits: (\d+)", done.stdout)[1])
    assert 8 <= largest < 128


def test_what_it_cannot_measure_is_said():
    done = run([DDPRUN, "--nproc-per-node", "2", TRAIN, "tune", *SMALL])
    assert done.returncode == 2 and "run it without a launcher" in done.stderr, done
    for arguments, said in ((["--pipeline", "2"], "leave --pipeline out"), (["--batchsize", "3"], "no option is called --batchsize")):
        done = tune(*arguments)
        assert done.returncode == 2 and said in done.stderr, done
