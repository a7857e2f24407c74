# SPDX-License-Identifier: Apache-2.0
import os

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset


class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        return torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


inputs = torch.randn(256, 8)
trainer = pl.Trainer(
    accelerator="auto",
    strategy="ddp",
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
    max_epochs=2,
    logger=False,
    enable_progress_bar=False,
)
trainer.fit(Module(), DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=16))
print(f"rank {trainer.global_rank} of {trainer.world_size}: done")
