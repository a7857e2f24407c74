# SPDX-License-Identifier: Apache-2.0
"""ddprun.lightning_fit(): fit() is entered again where it was, whatever it was doing. With ranks that die: test_kept_frameworks.py."""

import sys

import pytest

pytest.importorskip("pytorch_lightning")
import pytorch_lightning as pl  # noqa: E402
import torch  # noqa: E402
from conftest import PYTHON  # noqa: E402
from kept_lightning import Log, Net  # noqa: E402
from kept_runs import Interrupted, OneRank  # noqa: E402

sys.path.insert(0, PYTHON)
from ddprun.kept_lightning import _KeptFit  # noqa: E402

BATCHES = 20  # of an epoch


class Breaks(pl.Callback):
    """Interrupts fit() once at each of these steps."""

    def __init__(self, where, steps):
        self.where, self.steps = where, set(steps)

    def at(self, here, trainer):
        if here == self.where and trainer.global_step in self.steps and not trainer.sanity_checking:
            self.steps.remove(trainer.global_step)
            torch.rand(7)  # what is not completed has drawn numbers too
            raise Interrupted

    def on_train_batch_start(self, trainer, *_):
        self.at("batch", trainer)

    def on_train_batch_end(self, trainer, *_):
        self.at("after the step", trainer)

    def on_validation_batch_end(self, trainer, *_):
        self.at("validation", trainer)

    def on_train_epoch_end(self, trainer, *_):
        self.at("epoch end", trainer)

    def on_train_epoch_start(self, trainer, *_):
        self.at("epoch start", trainer)


def fit(folder, where="", steps=(), **flags):
    """A training, and what fit() takes; all random numbers are from one seed."""
    pl.seed_everything(3, verbose=False)
    inputs = torch.randn(4 * BATCHES, 8)
    rows = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
    model, log = Net(torch.nn.BatchNorm1d), Log(folder, 0)
    trainer = pl.Trainer(
        accelerator="cpu", devices=1, max_epochs=3, callbacks=[Breaks(where, steps), log], logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False, default_root_dir=folder, **flags,
    )  # fmt: skip
    loaders = [torch.utils.data.DataLoader(rows, batch_size=4, shuffle=shuffle) for shuffle in (True, False)]
    return trainer, model, log, loaders


def ends(trainer, model, log):
    return {
        **{name: value.tolist() for name, value in model.state_dict().items()},
        "validations": log.validations,
        "schedule": trainer.lr_scheduler_configs[0].scheduler.state_dict(),
        "epoch": trainer.current_epoch,
        "step": trainer.global_step,
    }


@pytest.mark.parametrize(
    "where, steps, flags",
    [
        ("batch", (3, 20, 27, 41), {"val_check_interval": 8}),
        ("batch", (5, 7), {"accumulate_grad_batches": 2}),
        ("after the step", (3, 20, 27), {"val_check_interval": 8}),
        ("validation", (8, 16, 36), {"val_check_interval": 0.4}),
        ("validation", (20, 40, 60), {}),
        ("epoch end", (20, 60), {}),
        ("epoch start", (20, 40), {}),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_fit_is_entered_again_where_it_was(tmp_path, monkeypatch, where, steps, flags):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    plain, model, log, loaders = fit(tmp_path, **flags)
    plain.fit(model, *loaders)
    expected = ends(plain, model, log)
    trainer, model, log, loaders = fit(tmp_path, where, steps, **flags)
    kept, current = _KeptFit(trainer, (model, *loaders), {}), OneRank()
    for _ in steps:
        with pytest.raises(Interrupted):
            kept.fit_in(current)
    kept.fit_in(current)
    assert ends(trainer, model, log) == expected


def test_another_number_of_ranks_is_refused(tmp_path):
    trainer, model, _, loaders = fit(tmp_path)
    kept = _KeptFit(trainer, (model, *loaders), {})
    kept.load_state_dict({"point": {"world_size": 4}, "checkpoint": {}})
    with pytest.raises(ValueError, match="began with 4 ranks and this round has 1, .*; start it with a fixed number of nodes"):
        kept.fit_in(OneRank())
