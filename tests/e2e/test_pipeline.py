# SPDX-License-Identifier: Apache-2.0
"""Models in stages from a shell: the same training as the unsplit model's, whatever starts the ranks."""

import json
import re
import signal

import pytest
import torch
from conftest import DDPRUN, TRAIN, clean_environment, finish_all, free_port, run, start, torchrun_standalone, wait_for

TOLERANCE = 1e-5
STEPS = 10
COMMON = ["--dataset", "synthetic", "--samples", "512", "--max-steps", STEPS, "--log-every", "1"]
COMMON += ["--lr", "0.01", "--no-eval"]
# Four micro-batches of four see what four accumulated batches of four see, batch norm's statistics included.
UNSPLIT = [*COMMON, "--batch-size", "4", "--accumulate", "4"]
SPLIT = [*COMMON, "--batch-size", "16", "--micro-batches", "4"]


def ddprun(ranks):
    return [DDPRUN, "--standalone", "--nproc-per-node", ranks, TRAIN]


def trained(command, folder):
    done = run([*command, "--output-dir", folder], timeout=240, env=clean_environment(OMP_NUM_THREADS="1"))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss/train"] for line in lines if "loss/train" in line]
    assert len(losses) == STEPS, lines
    return losses, torch.load(folder / "cifar_net.pth"), done.stdout


def assert_same(one, other):
    for a, b in zip(one[0], other[0]):
        assert abs(a - b) <= TOLERANCE * max(1, a), (one[0], other[0])
    assert one[1].keys() == other[1].keys()
    for name, tensor in one[1].items():
        assert torch.allclose(tensor, other[1][name], rtol=1e-4, atol=TOLERANCE), name


def test_stages_of_one_model_train_as_the_unsplit_model(tmp_path):
    unsplit = trained([TRAIN, *UNSPLIT], tmp_path / "unsplit")
    runs = {
        "ddprun": [*ddprun(2), *SPLIT, "--pipeline", "2"],
        "torchrun": [*torchrun_standalone(), "--nproc-per-node", "2", "--no-python", TRAIN, *SPLIT, "--pipeline", "2"]
        + ["--pipeline-schedule", "gpipe"],
        "four": [*ddprun(4), *SPLIT, "--pipeline", "4", "--deterministic"],
        "threads": [TRAIN, *SPLIT, "--pipeline", "3"],
    }
    for name, command in runs.items():
        split = trained(command, tmp_path / name)
        assert_same(unsplit, split)
        assert re.search(r"stage 0: stem.*; stage 1: .*head", split[2]), split[2]


def test_a_checkpoint_knows_of_no_stages(tmp_path):
    """Interrupted and resumed, in stages or whole, it ends as the training left alone."""
    split = [*ddprun(2), *SPLIT, "--pipeline", "2", "--deterministic"]
    alone = trained(split, tmp_path / "alone")
    saving = ["--checkpoint-every", "4", "--checkpoint-keep", "3"]
    saved = trained([*split, *saving], tmp_path / "saved")
    assert all(torch.equal(alone[1][name], saved[1][name]) for name in alone[1])
    middle = tmp_path / "saved/checkpoints/step-000000004.safetensors"
    resume = ["--resume", middle]
    for name, command in {"split": [*split, *resume], "whole": [TRAIN, *UNSPLIT, *resume]}.items():
        folder = tmp_path / name
        done = run([*command, "--output-dir", folder], timeout=240, env=clean_environment(OMP_NUM_THREADS="1"))
        assert done.returncode == 0, done.stdout + done.stderr
        parameters = torch.load(folder / "cifar_net.pth")
        difference = max((parameters[key] - alone[1][key]).abs().max().item() for key in parameters)
        assert difference == 0 if name == "split" else difference < TOLERANCE, (name, difference)


def test_weights_that_rank_0_reads_reach_every_stage(tmp_path):
    _, weights, _ = trained([TRAIN, *UNSPLIT], tmp_path / "first")
    nothing = [*ddprun(2), *SPLIT, "--pipeline", "2", "--max-steps", "0", "--init-from", tmp_path / "first/cifar_net.pth"]
    done = run([*nothing, "--output-dir", tmp_path / "second"], timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    second = torch.load(tmp_path / "second/cifar_net.pth")
    assert all(torch.equal(weights[name], second[name]) for name in weights)


def test_two_models_of_two_stages_train_as_two_data_parallel_ranks(tmp_path):
    unsplit = trained([*ddprun(2), *UNSPLIT], tmp_path / "unsplit")
    assert_same(unsplit, trained([*ddprun(4), *SPLIT, "--pipeline", "2"], tmp_path / "split"))


def test_evaluation_average_and_clipping_are_those_of_the_whole_model(tmp_path):
    more = ["--eval", "--ema-decay", "0.9", "--clip-norm", "0.5", "--optimizer", "adamw", "--eval-batch-size", "50"]
    unsplit = trained([TRAIN, *UNSPLIT, *more], tmp_path / "unsplit")
    split = trained([*ddprun(2), *SPLIT, *more, "--pipeline", "2"], tmp_path / "split")
    assert_same(unsplit, split)
    summaries = [json.loads((tmp_path / name / "summary.json").read_text()) for name in ("unsplit", "split")]
    assert abs(summaries[0]["test_loss"] - summaries[1]["test_loss"]) < 1e-4
    assert abs(summaries[0]["test_accuracy"] - summaries[1]["test_accuracy"]) < 0.02


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ([*ddprun(3), *SPLIT, "--pipeline", "2"], "--pipeline 2 needs a number of ranks that is a multiple"),
        ([TRAIN, *SPLIT, "--pipeline", "13"], "--pipeline 13 is more than the 12 parts"),
        ([TRAIN, *SPLIT, "--pipeline", "2", "--micro-batches", "17"], "--micro-batches 17 cannot share a batch of 16"),
    ],
)
def test_what_cannot_be_split_is_one_sentence(tmp_path, command, says):
    done = run([*command, "--output-dir", tmp_path])
    assert done.returncode == 2, done.stderr
    assert says in done.stderr


def test_a_stage_that_dies_is_named_by_its_neighbour(tmp_path):
    """Ranks by hand: there is no agent that would end the other one."""
    port = str(free_port())
    processes = []
    for rank in range(2):
        env = clean_environment(
            OMP_NUM_THREADS="1", RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=port
        )
        command = [TRAIN, *SPLIT, "--pipeline", "2", "--max-steps", "100000", "--epochs", "10000", "--timeout", "60"]
        processes.append(start([*command, "--output-dir", tmp_path], env=env))
    log = tmp_path / "metrics.jsonl"
    wait_for("the first step", lambda: log.exists() and log.stat().st_size > 0)
    processes[1].send_signal(signal.SIGKILL)
    (code, _, errors), _ = finish_all(processes)
    assert code == 1
    assert re.search(r"stage 1 \(rank 1\) did not .*see what it said last", errors), errors
