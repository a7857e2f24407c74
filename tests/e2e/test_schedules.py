# SPDX-License-Identifier: Apache-2.0
"""Every step's learning rate is that of torch.optim.lr_scheduler, for every --schedule."""

import json

import pytest
import torch
from conftest import TRAIN, run
from torch.optim import lr_scheduler

PEAK = 0.1
BATCH = 4


def rates_of(tmp_path, steps, *settings):
    """Of a training of `steps` steps, ten an epoch."""
    done = run(
        [TRAIN, "--model", "linear", "--dataset", "random", "--samples", 10 * BATCH, "--batch-size", BATCH]
        + ["--epochs", steps / 10, "--lr", PEAK, "--log-every", "1", "--no-eval", "--output-dir", tmp_path, *settings]
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    return [line["learning_rate"] for line in lines if "learning_rate" in line]


def rates_in_python(steps, make_schedule):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=PEAK)
    schedule = make_schedule(optimizer)
    rates = []
    for step in range(steps):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        if step + 1 < steps:
            schedule.step()
    return rates


def warmed_up(optimizer, warmup, schedule):
    rise = lr_scheduler.LinearLR(optimizer, start_factor=1 / warmup, total_iters=warmup - 1)
    return lr_scheduler.SequentialLR(optimizer, [rise, schedule], milestones=[warmup])


def assert_rates(ours, theirs):
    assert len(ours) == len(theirs)
    for step, (our, their) in enumerate(zip(ours, theirs)):
        # Python's schedules multiply step by step, so roundings add up.
        assert our == pytest.approx(their, rel=1e-9, abs=1e-12), f"step {step}"


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 10, 12, 25, 31])
def test_one_cycle(tmp_path, steps):
    ours = rates_of(tmp_path, steps, "--schedule", "one-cycle")
    assert_rates(ours, rates_in_python(steps, lambda o: lr_scheduler.OneCycleLR(o, PEAK, total_steps=steps)))


def test_one_cycle_with_a_rise_of_a_given_length(tmp_path):
    ours = rates_of(tmp_path, 20, "--schedule", "one-cycle", "--warmup-steps", "5")
    theirs = rates_in_python(20, lambda o: lr_scheduler.OneCycleLR(o, PEAK, total_steps=20, pct_start=0.25))
    assert_rates(ours, theirs)


@pytest.mark.parametrize("steps", [3, 25])
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("cosine", lambda o, steps: lr_scheduler.CosineAnnealingLR(o, T_max=steps)),
        ("linear", lambda o, steps: lr_scheduler.LinearLR(o, 1.0, 0.0, total_iters=steps)),
        ("constant", lambda o, steps: lr_scheduler.ConstantLR(o, factor=1.0)),
    ],
)
def test_without_and_with_a_warm_up(tmp_path, name, make, steps):
    ours = rates_of(tmp_path / "plain", steps, "--schedule", name, "--warmup-steps", "0")
    assert_rates(ours, rates_in_python(steps, lambda o: make(o, steps)))
    if steps < 10:
        return
    ours = rates_of(tmp_path / "warm", steps, "--schedule", name, "--warmup-steps", "4")
    assert_rates(ours, rates_in_python(steps, lambda o: warmed_up(o, 4, make(o, steps - 4))))


@pytest.mark.parametrize("epochs", [0.3, 1, 2])
def test_step(tmp_path, epochs):
    ours = rates_of(
        tmp_path, 35, "--schedule", "step", "--warmup-steps", "0", "--step-epochs", epochs, "--step-gamma", "0.5"
    )
    theirs = rates_in_python(35, lambda o: lr_scheduler.StepLR(o, step_size=round(10 * epochs), gamma=0.5))
    assert_rates(ours, theirs)
