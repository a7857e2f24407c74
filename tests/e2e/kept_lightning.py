# SPDX-License-Identifier: Apache-2.0
"""A training by Lightning's Trainer whose ranks are kept: kept_lightning.py FOLDER EPOCHS [SECONDS]. It logs as kept_trainer.py does;
rank 0 writes the network, its optimizer, its schedule and the validations to FOLDER/end.pt."""

import json
import os
import pathlib
import sys
import time

import pytorch_lightning as pl
import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "worker" / "python"))
import ddprun  # noqa: E402


class Net(pl.LightningModule):
    def __init__(self, norm=nn.LayerNorm):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.ReLU(), norm(16), nn.Linear(16, 1))

    def loss_of(self, batch):
        inputs, labels = batch
        return nn.functional.mse_loss(self.net(inputs), labels)

    def training_step(self, batch, number):
        return self.loss_of(batch)

    def validation_step(self, batch, number):
        self.log("val_loss", self.loss_of(batch), sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.1)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "monitor": "val_loss"}}


class Log(pl.Callback):
    def __init__(self, folder, pause):
        self.folder, self.pause, self.validations = folder, pause, []

    def on_train_batch_end(self, trainer, *_):
        with open(self.folder / f"samples-{trainer.global_rank}.jsonl", "a") as log:
            log.write(json.dumps({"step": trainer.global_step, "pid": os.getpid()}) + "\n")
        time.sleep(self.pause)

    def on_validation_end(self, trainer, module):
        if not trainer.sanity_checking:
            self.validations.append((trainer.global_step, trainer.callback_metrics["val_loss"].item()))

    def state_dict(self):
        return {"validations": self.validations}

    def load_state_dict(self, state):
        self.validations = list(state["validations"])


def main():
    folder, epochs = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    pl.seed_everything(3, verbose=False)
    inputs = torch.randn(160, 8)
    rows = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
    model, log = Net(), Log(folder, float(sys.argv[3]) if len(sys.argv) > 3 else 0)

    def make_trainer():
        ranks, local_ranks = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
        return pl.Trainer(
            accelerator="cpu", devices=local_ranks, num_nodes=ranks // local_ranks, strategy="ddp", max_epochs=epochs, callbacks=[log], logger=False,
            enable_progress_bar=False, enable_model_summary=False, val_check_interval=8, default_root_dir=folder / "out",
        )  # fmt: skip

    def loader(rows, **more):
        return torch.utils.data.DataLoader(rows, batch_size=4, **more)

    validation = torch.utils.data.Subset(rows, range(32))
    trainer = ddprun.lightning_fit(make_trainer, model, loader(rows, shuffle=True), loader(validation))
    end = {"net": model.state_dict(), "optimizer": trainer.optimizers[0].state_dict(), "validations": log.validations}
    end["schedule"] = trainer.lr_scheduler_configs[0].scheduler.state_dict()
    end["last"] = trainer.validate(model, loader(validation), verbose=False)
    if trainer.is_global_zero:
        torch.save(end, folder / "end.pt")


if __name__ == "__main__":
    main()
