# SPDX-License-Identifier: Apache-2.0
"""Callbacks that tell ddprun how far a training of a well-known package is. A package is imported when its callback is made. When a
package's loop has ended, nothing more is to be expected: what comes after it is not a hang, however long it is silent.

track: where rank 0's values go besides: True (what is installed), "wandb", "trackio", or a Tracking of tracking.py."""

import importlib
import sys

from .notify import progress


def _known(steps):
    """None for a training without end, which -1 and inf stand for."""
    return int(steps) if 0 < steps < float("inf") else None


def _number(loss):
    """None for one on a GPU, which reading would wait for."""
    on_host = isinstance(loss, (int, float)) or getattr(getattr(loss, "device", None), "type", "") == "cpu"
    return float(loss) if on_host else None


def _tracked(track):
    from .tracking import tracking  # not before it is needed: it is a program, too

    return tracking(track)


def transformers_callback(track=None):
    """`transformers.Trainer(..., callbacks=[ddprun.transformers_callback()])`."""
    from transformers import TrainerCallback

    tracked = _tracked(track)

    class Progress(TrainerCallback):
        in_training = False

        def on_log(self, args, state, control, logs=None, **kwargs):
            if (loss := _number((logs or {}).get("loss"))) is not None:
                progress(state.global_step, loss=loss, section="train")
            if (accuracy := _number((logs or {}).get("eval_accuracy"))) is not None:
                progress(state.global_step, accuracy=accuracy)
            if tracked:
                tracked.log(state.global_step, logs or {})

        def on_train_begin(self, args, state, control, **kwargs):
            self.in_training = True

        def on_substep_end(self, args, state, control, **kwargs):
            progress(state.global_step, steps=_known(state.max_steps), epoch=int(state.epoch or 0), section="train")

        def on_step_end(self, args, state, control, **kwargs):
            progress(state.global_step, steps=_known(state.max_steps), epoch=int(state.epoch or 0), section="train")

        def on_prediction_step(self, args, state, control, **kwargs):
            progress(state.global_step, section="evaluation")

        def on_evaluate(self, args, state, control, **kwargs):
            progress(state.global_step, watch=self.in_training)

        def on_predict(self, args, state, control, **kwargs):
            progress(state.global_step, watch=self.in_training)

        def on_save(self, args, state, control, **kwargs):
            progress(state.global_step, section="checkpoint")

        def on_train_end(self, args, state, control, **kwargs):
            self.in_training = False
            progress(state.global_step, watch=False)

    return Progress()


def lightning_callback(track=None):
    """`Trainer(..., callbacks=[ddprun.lightning_callback()])`, of `lightning` or `pytorch_lightning`: the one that the program
    has imported."""
    names = ("lightning.pytorch", "pytorch_lightning")
    package = importlib.import_module(next((name for name in names if name in sys.modules), names[0]))
    tracked = _tracked(track)

    class Progress(package.Callback):
        in_loop = False  # of fit(), validate(), test() or predict()
        tracked_step = 0  # with accumulated gradients several batches are one

        def setup(self, trainer, module, stage):
            self.in_loop = True

        def on_train_batch_end(self, trainer, module, outputs, *rest):
            steps, loss = _known(trainer.estimated_stepping_batches), outputs.get("loss") if isinstance(outputs, dict) else outputs
            progress(trainer.global_step, steps=steps, epoch=trainer.current_epoch, loss=_number(loss), section="train")
            if tracked and trainer.global_step != self.tracked_step and trainer.global_step % trainer.log_every_n_steps == 0:
                self.tracked_step = trainer.global_step
                tracked.log(trainer.global_step, {"loss": loss, "epoch": trainer.current_epoch, **trainer.callback_metrics})

        def on_validation_end(self, trainer, *rest):
            if tracked and not trainer.sanity_checking:
                tracked.log(trainer.global_step, trainer.callback_metrics)

        def on_validation_batch_end(self, trainer, *rest):
            progress(trainer.global_step, epoch=trainer.current_epoch, section="evaluation")

        def on_test_batch_end(self, trainer, *rest):
            progress(trainer.global_step, section="test")

        def on_predict_batch_end(self, trainer, *rest):
            progress(trainer.global_step, section="prediction")

        def on_save_checkpoint(self, trainer, *rest):
            progress(trainer.global_step, section="checkpoint", watch=self.in_loop)

        def on_exception(self, trainer, *rest):
            self.in_loop = False
            progress(watch=False)

        def teardown(self, trainer, module, stage):
            self.in_loop = False
            progress(watch=False)

    return Progress()


def accelerate_tracker(track=None):
    """`Accelerator(log_with=ddprun.accelerate_tracker())` and `init_trackers()`: what `Accelerator.log(values, step=...)` is given
    on each rank, its step and, if they are among the values, its "epoch" and "loss"."""
    from accelerate.tracking import GeneralTracker

    tracked = _tracked(track)

    class Progress(GeneralTracker):
        name = "ddprun"
        requires_logging_directory = False
        main_process_only = False
        tracker = None

        def store_init_configuration(self, values):
            pass

        def log(self, values, step=None, **kwargs):
            progress(step, epoch=values.get("epoch"), loss=_number(values.get("loss")), section="train")
            if tracked:
                tracked.log(step, values)

        def finish(self):
            progress(watch=False)
            if tracked:
                tracked.finish()

    return Progress()
