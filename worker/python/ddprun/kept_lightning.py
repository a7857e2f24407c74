# SPDX-License-Identifier: Apache-2.0
"""A training by Lightning's Trainer that outlives the death of a rank. Needs lightning or pytorch_lightning."""

import copy
import importlib
import sys
import warnings

from .round_client import Rounds
from .rounds import rounds
from .shared_state import check_world_size, random_state, set_random_state

_SOURCE = "the latest step of the ranks that are left"  # in Lightning's sentences: the path of the checkpoint


def lightning_fit(trainer, *arguments, **keywords):
    """`trainer.fit(*arguments, **keywords)`, which goes on in the same process when another rank dies:

        trainer = Trainer(strategy="ddp", accelerator="cpu", devices=2, max_epochs=10)
        ddprun.lightning_fit(trainer, model, data)

    fit() is entered again in the next round, after the latest complete step: model, optimizers, schedules, callbacks, random numbers
    and the place in the data are those of the ranks that are left, and a new process receives them. `trainer`: or a function that
    makes it, for --spares: Lightning's Trainer asks for its rank, and a spare has none. Returns the trainer."""
    if not Rounds().has_agent:
        trainer = trainer if hasattr(trainer, "fit") else trainer()
        trainer.fit(*arguments, **keywords)
        return trainer
    kept = _KeptFit(trainer, arguments, keywords)
    for round in rounds(kept, backend=kept.backend(), _keeps_group=True):
        with round:
            kept.fit_in(round)
    return kept.trainer


class _KeptFit:
    """What rounds() keeps. A point is the end of a step, or the start of an epoch."""

    def __init__(self, trainer, arguments, keywords):
        self.trainer = trainer if hasattr(trainer, "fit") else None
        self._make_trainer = None if self.trainer else trainer
        self._arguments, self._keywords = arguments, keywords
        self._round = None
        self._point = None  # the parts of a checkpoint that each point changes; None before the first
        self._epoch_random = None  # random numbers at the start of the epoch
        self._modes = []  # (module, whether it trains) at the latest point: an evaluation changes them
        self._to_begin = None  # the checkpoint with which fit() begins, until it has

    def backend(self):
        import torch

        uses_gpus = self.trainer.strategy.root_device.type != "cpu" if self.trainer else torch.cuda.is_available()
        return None if uses_gpus else "gloo"

    def state_dict(self):
        return {"point": self._point, "checkpoint": self._latest() if self._point else None}

    def load_state_dict(self, state):
        self._point, self._to_begin = state["point"], state["checkpoint"]

    def buffers(self):
        return self.trainer.lightning_module.buffers() if self._point and not self._to_begin else ()

    def fit_in(self, round):
        """fit(), from the latest point on."""
        self._round = round
        if self.trainer is None:
            self.trainer = self._make_trainer()
        trainer = self.trainer
        if not any(isinstance(callback, _Points) for callback in trainer.callbacks):
            trainer.callbacks += _points(self)
        if not self._point:
            trainer.fit(*self._arguments, **self._keywords)
            return
        check_world_size(self._point["world_size"], round.world_size, "Lightning's count of batches")
        for module, trains in self._modes:
            module.training = trains
        checkpoint = self._to_begin = self._latest()
        trainer.strategy.load_checkpoint = lambda *_, **__: checkpoint
        # begin() reads past the batches that are done.
        warnings.filterwarnings("ignore", "You're resuming from a checkpoint that ended before the epoch")
        try:
            trainer.fit(*self._arguments, **{**self._keywords, "ckpt_path": _SOURCE})
        finally:
            del trainer.strategy.load_checkpoint

    def take_point(self, at_epoch_start):
        trainer = self.trainer
        epoch_loop = trainer.fit_loop.epoch_loop
        if not at_epoch_start and epoch_loop._should_accumulate():
            return  # what has been accumulated is in the gradients
        now = random_state()
        if at_epoch_start:
            self._epoch_random = now
        loops = copy.deepcopy(trainer._checkpoint_connector._get_loops_state_dict())
        if not at_epoch_start:
            for count in ("total", "current"):  # which Lightning counts after the callbacks
                loops["fit_loop"]["epoch_loop.batch_progress"][count]["completed"] += 1
        self._point = {
            "loops": loops,
            "callbacks": copy.deepcopy(_call(trainer)._call_callbacks_state_dict(trainer)),
            "lr_schedulers": [copy.deepcopy(config.scheduler.state_dict()) for config in trainer.lr_scheduler_configs],
            "metrics": dict(trainer._logger_connector._callback_metrics),
            "random": now,
            "epoch_random": self._epoch_random,
            "at_epoch_start": at_epoch_start,
            "world_size": self._round.world_size,
        }
        self._modes = [(module, module.training) for module in trainer.lightning_module.modules()]
        self._round.count_to(self._round.step + 1)

    def begin(self):
        """Called when Lightning has restored the checkpoint and is about to start its loop. Its own way to resume starts the epoch's data
        from the first batch and leaves out an evaluation that was due."""
        epoch_loop = self.trainer.fit_loop.epoch_loop
        vars(epoch_loop).pop("advance", None)  # left by a round that ended before its first step
        if not self._to_begin:
            return
        self._to_begin, point = None, self._point
        self._epoch_random = point["epoch_random"]
        fit_loop = self.trainer.fit_loop
        batches = fit_loop._data_fetcher
        self.trainer._logger_connector._callback_metrics.update(point["metrics"])  # a schedule or callback may ask for them
        fit_loop._restarting = False  # which would keep schedules from the metrics of this epoch
        if point["at_epoch_start"]:
            epoch_loop.restarting = fit_loop._resuming_from_checkpoint = False
            set_random_state(point["random"])
            return
        if not fit_loop._combined_loader._state_dicts():  # a loader with a state of its own is where it was
            set_random_state(point["epoch_random"])
            set_epoch = sys.modules[type(fit_loop).__module__]._set_sampler_epoch
            for loader in fit_loop._combined_loader.flattened:
                set_epoch(loader, fit_loop.epoch_progress.current.processed)
            if self.trainer.current_epoch > 0:
                iter(batches)  # as at the start of the epoch
            done = epoch_loop.batch_progress.current.completed
            for _ in range(done):
                next(batches)
            batches.fetched -= done  # Lightning adds it
        set_random_state(point["random"])
        epoch_loop.val_loop.restarting = epoch_loop.val_loop._has_run = False
        epoch_loop.advance = lambda _: delattr(epoch_loop, "advance")  # the loop goes on with what follows a step

    def _latest(self):
        """The checkpoint of the latest point."""
        if self._to_begin:
            return self._to_begin
        checkpoint = self.trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        return {**checkpoint, **{name: self._point[name] for name in ("loops", "callbacks", "lr_schedulers")}}


class _Points:
    """The base of this file's callbacks, whichever package they are made for."""


def _points(kept):
    """The first callback and the last one: others may end the round after the optimizer's step, and change what is kept."""
    package = importlib.import_module(_package(kept.trainer))

    class Points(_Points, package.Callback):
        def on_train_batch_end(self, *_):
            kept.take_point(at_epoch_start=False)

    class LastPoints(Points):
        def setup(self, trainer, module, stage):
            others = [callback for callback in trainer.callbacks if not isinstance(callback, _Points)]
            trainer.callbacks = [first, *others, self]  # Lightning puts those of the module and ModelCheckpoint last

        def on_train_start(self, trainer, module):
            kept.begin()

        def on_train_epoch_start(self, trainer, module):
            kept.take_point(at_epoch_start=True)

    first = Points()
    return [first, LastPoints()]


def _package(trainer):
    """`lightning.pytorch` or `pytorch_lightning`."""
    return next(one.__module__ for one in type(trainer).__mro__ if one.__name__ == "Trainer").rpartition(".trainer.")[0]


def _call(trainer):
    return sys.modules[f"{_package(trainer)}.trainer.call"]
