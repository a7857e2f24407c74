# SPDX-License-Identifier: Apache-2.0
"""A training by transformers.Trainer that outlives the death of a rank. Needs transformers."""

import dataclasses
import json
import os
import tempfile
import time

from .round_client import Rounds
from .rounds import rounds
from .shared_state import check_world_size, random_state, set_random_state

_STATE_FILE = "trainer_state.json"  # the name that train() reads in a checkpoint's folder


def transformers_train(trainer, **arguments):
    """`trainer.train(**arguments)`, which goes on in the same process when another rank dies:

        trainer = Trainer(model, TrainingArguments(...), train_dataset=...)
        ddprun.transformers_train(trainer)

    train() is entered again in the next round, after the latest complete step: model, optimizer, schedule, random numbers and the
    place in the data are those of the ranks that are left, and a new process receives them. What train() returns."""
    if not Rounds().has_agent:
        return trainer.train(**arguments)
    kept = _KeptTraining(trainer, arguments)
    backend = "gloo" if trainer.args.device.type == "cpu" else trainer.args.ddp_backend
    for round in rounds(kept, backend=backend, _after_group=True):
        with round:
            result = kept.train_in(round)
    return result


class _KeptTraining:
    """What rounds() keeps. A point is the end of a step or of an epoch, or of an evaluation or a checkpoint that follows it."""

    def __init__(self, trainer, arguments):
        self._trainer, self._arguments = trainer, arguments
        self._round = None
        self._world_size = None  # of the first round
        self._random = self._sums = None  # at the latest point; None before the first
        self._logged = None  # what a log entry that is due has of the step
        self._resumed = None  # the state that train() begins with
        self._own_methods = {name: getattr(trainer, name) for name in _RESUMING}
        self._log_and_evaluate, trainer._maybe_log_save_evaluate = trainer._maybe_log_save_evaluate, self.note_and_log
        steps, others = _points(self)
        # Before other callbacks, in which the round may end, and after that which says what is due.
        trainer.callback_handler.callbacks.insert(1, steps)
        trainer.add_callback(others)

    def state_dict(self):
        trainer = self._trainer
        state = {"model": trainer.model.state_dict(), "world_size": self._world_size, "random": self._random, "sums": self._sums}
        if self._random:
            state |= {"optimizer": trainer.optimizer.state_dict(), "schedule": trainer.lr_scheduler.state_dict()}
            state |= {"state": dataclasses.asdict(trainer.state), "due": [getattr(trainer.control, name) for name in _DUE]}
            state |= {"logged": self._logged}
        return state

    def load_state_dict(self, state):
        self._trainer.model.load_state_dict(state["model"])
        self._world_size, self._random, self._sums = state["world_size"], state["random"], state["sums"]
        self._logged = state.get("logged")
        self._resumed = state

    def train_in(self, round):
        """train(), from the latest point on."""
        trainer, self._round = self._trainer, round
        self._world_size = self._world_size or round.world_size
        check_world_size(self._world_size, round.world_size, "Trainer's count of steps")
        if self._random and not self._resumed:
            self._resumed = self.state_dict()  # train() makes the schedule anew, which changes the optimizer's learning rate
        _enter_world(trainer)
        if not self._random:
            return trainer.train(**self._arguments)
        for name in _RESUMING:
            setattr(trainer, name, getattr(self, name))
        try:
            with tempfile.TemporaryDirectory(prefix="ddprun-") as folder:
                with open(os.path.join(folder, _STATE_FILE), "w", encoding="utf-8") as file:
                    json.dump(self._resumed["state"], file)
                return trainer.train(**{**self._arguments, "resume_from_checkpoint": folder})
        finally:
            for name, method in self._own_methods.items():
                setattr(trainer, name, method)

    def buffers(self):
        return self._trainer.model.buffers()

    def take_point(self, step=None):
        """`step`: of the round, at the end of a step or epoch; None: after a log entry, an evaluation or a checkpoint that follows it."""
        if not self._trainer.is_in_train:
            return  # the program's own evaluate()
        self._random = random_state()
        self._sums = {name: getattr(self._trainer, name) for name in _SUMS}
        self._sums["_tr_loss"] = self._trainer._tr_loss.clone()  # which train() adds to in place
        self._round.count_to(self._round.step + 1 if step is None else step)

    def note_step(self):
        """Before the schedule's step; what else the entry has comes with note_and_log()."""
        self._logged = {"grad_norm": None, "learning_rate": self._trainer._get_learning_rate()}

    def note_and_log(self, tr_loss, grad_norm, *rest, learning_rate=None, **more):
        """Before the first collective, in which a round may end."""
        self._logged = {"grad_norm": grad_norm, "learning_rate": learning_rate}
        return self._log_and_evaluate(tr_loss, grad_norm, *rest, learning_rate=learning_rate, **more)

    def begin(self, model):
        """Once train() has prepared all: log, evaluation and checkpoint that were due at the point."""
        if not self._resumed:
            return
        trainer, due = self._trainer, self._resumed["due"]
        self._resumed = None
        self._load_rng_state()
        for name, value in self._sums.items():
            setattr(trainer, name, value)
        trainer._tr_loss = trainer._tr_loss.clone()
        for name, value in zip(_DUE, due):
            setattr(trainer.control, name, value)
        rest = {"model": model, "trial": None, "epoch": trainer.state.epoch, "ignore_keys_for_eval": None, "start_time": time.time()}
        self._log_and_evaluate(trainer._tr_loss, **rest, **self._logged)

    # In place of the trainer's, which read files.

    def _load_from_checkpoint(self, *_):
        pass

    def _load_scaler(self, *_):
        pass

    def _load_optimizer_and_scheduler(self, *_):
        self._trainer.optimizer.load_state_dict(self._resumed["optimizer"])
        self._trainer.lr_scheduler.load_state_dict(self._resumed["schedule"])

    def _load_rng_state(self, *_):
        set_random_state(self._random)


_RESUMING = ("_load_from_checkpoint", "_load_scaler", "_load_optimizer_and_scheduler", "_load_rng_state")
_SUMS = ("_tr_loss", "_total_loss_scalar", "_globalstep_last_logged", "_initial_global_step", "current_flos")
_DUE = ("should_log", "should_evaluate", "should_save")


def _points(kept):
    from transformers import TrainerCallback

    class StepPoints(TrainerCallback):
        def on_optimizer_step(self, args, state, control, **kwargs):
            kept.note_step()

        def on_step_end(self, args, state, control, **kwargs):
            kept.take_point(16 * state.global_step)

    class Points(TrainerCallback):
        def on_train_begin(self, args, state, control, **kwargs):
            kept.begin(kwargs["model"])

        def on_epoch_end(self, args, state, control, **kwargs):
            kept.take_point(16 * state.global_step + 8)

        def on_log(self, args, state, control, logs, **kwargs):
            if "loss" in logs:  # not those of an evaluation, which has not ended
                kept.take_point()

        def on_evaluate(self, args, state, control, **kwargs):
            kept.take_point()

        on_save = on_evaluate

    return StepPoints(), Points()


def _enter_world(trainer):
    """The process group has been made after the trainer, or anew."""
    trainer.args.__dict__.pop("_setup_devices", None)
    trainer.args.device  # asks torch.distributed for rank and world size
    trainer.create_accelerator_and_postprocess()
    trainer.model_wrapped = trainer.model  # not DistributedDataParallel of an earlier round
    trainer.optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)  # accelerate has wrapped it
