# SPDX-License-Identifier: Apache-2.0
"""ddprun.transformers_train() and accelerate_rounds() under the real agent: ranks die, and the others go on in their processes."""

import os
import pathlib
import re
import signal
import sys
import types

import pytest
import torch
import transformers
from conftest import PYTHON
from kept_runs import Interrupted, OneRank, finished, reach, training
from kept_trainer import Net
from kept_training import state_of

sys.path.insert(0, PYTHON)
from ddprun.kept_trainer import _KeptTraining  # noqa: E402

PROGRAMS = {name: pathlib.Path(__file__).with_name(f"kept_{name}.py") for name in ("trainer", "accelerate", "lightning")}
PRELOAD = {"trainer": "torch,transformers", "accelerate": "torch,accelerate", "lightning": "torch,pytorch_lightning"}


@pytest.mark.nightly
@pytest.mark.parametrize("spares", [0, 1])
@pytest.mark.parametrize("name", PROGRAMS)
def test_killed_ranks_leave_no_trace(tmp_path, name, spares):
    """Not in the network, nor in the optimizer's state, nor in what the Trainer has logged."""

    def begin(folder, *flags, pause=0.0):
        return training(folder, "--nproc-per-node", 2, *flags, program=PROGRAMS[name], steps=3, pause=pause, preload=PRELOAD[name])

    finished(begin(tmp_path / "plain"))
    process = begin(tmp_path / "run", "--max-restarts", 9, "--spares", spares, pause=0.05)
    victims = (1, 0)
    for victim in victims:
        pids = reach(tmp_path / "run", process, 2, 10)
        os.kill(pids[victim], signal.SIGKILL)
        after = reach(tmp_path / "run", process, 2, 3)
        assert after[victim] != pids[victim] and after[1 - victim] == pids[1 - victim]
    assert len(re.findall("restart ", finished(process))) == len(victims)
    assert state_of(tmp_path / "plain") == state_of(tmp_path / "run")


def test_another_number_of_ranks_is_refused():
    class Trainer:
        callback_handler = types.SimpleNamespace(callbacks=[])
        model = types.SimpleNamespace(load_state_dict=lambda state: None)
        _load_from_checkpoint = _load_scaler = _load_optimizer_and_scheduler = _load_rng_state = _maybe_log_save_evaluate = None

        def add_callback(self, callback):
            pass

    kept = _KeptTraining(Trainer(), {})
    kept.load_state_dict({"model": {}, "world_size": 4, "random": None, "sums": None})
    with pytest.raises(ValueError, match="began with 4 ranks and this round has 3, .*; start it with a fixed number of nodes"):
        kept.train_in(types.SimpleNamespace(world_size=3))


def small_training(folder, breaks=(), where=None):
    """A Trainer that is interrupted once at each of these steps, before the step or in the evaluation after it; its log."""
    breaks = set(breaks)

    class Breaks(transformers.TrainerCallback):
        def at(self, here, state):
            if here == where and state.global_step in breaks:
                breaks.remove(state.global_step)
                torch.rand(7)  # a step that is not completed has drawn numbers too
                raise Interrupted

        def on_step_begin(self, args, state, control, **kwargs):
            self.at("step", state)

        def on_step_end(self, args, state, control, **kwargs):
            self.at("after the step", state)

        def on_prediction_step(self, args, state, control, **kwargs):
            self.at("evaluation", state)

    arguments = transformers.TrainingArguments(
        output_dir=str(folder), use_cpu=True, per_device_train_batch_size=8, num_train_epochs=2, disable_tqdm=True, report_to=[],
        eval_strategy="steps", eval_steps=7, save_strategy="no", logging_steps=5, learning_rate=0.01, seed=3,
    )  # fmt: skip
    transformers.set_seed(3)
    inputs = torch.randn(160, 8)
    rows = [{"x": x, "labels": x.sum(0, keepdim=True)} for x in inputs]
    return transformers.Trainer(Net(), arguments, train_dataset=rows, eval_dataset=rows[:32], callbacks=[Breaks()])


def log_of(trainer, *left_out):
    left_out = ("runtime", "per_second", *left_out)
    return [{name: value for name, value in entry.items() if not any(part in name for part in left_out)} for entry in trainer.state.log_history]


@pytest.mark.parametrize("where, breaks", [("step", (3, 20, 27)), ("after the step", (5, 14, 20)), ("evaluation", (7, 21, 35))])
def test_train_is_entered_again_where_it_was(tmp_path, monkeypatch, where, breaks):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    plain = small_training(tmp_path)
    plain.train()
    trainer = small_training(tmp_path, breaks, where)  # which draws its numbers from the same seed
    kept, current = _KeptTraining(trainer, {}), OneRank()
    for _ in breaks:
        with pytest.raises(Interrupted):
            kept.train_in(current)
    assert kept.train_in(current).global_step == 40
    unknown = ["grad_norm"] if where == "after the step" else []  # before the Trainer tells it
    assert log_of(plain, *unknown) == log_of(trainer, *unknown)
    for name, value in plain.model.state_dict().items():
        assert torch.equal(value, trainer.model.state_dict()[name]), name
