# SPDX-License-Identifier: Apache-2.0
"""A loop with accelerate whose ranks are kept: kept_accelerate.py FOLDER EPOCHS [SECONDS]. It logs and writes as kept_trainer.py does."""

import json
import os
import pathlib
import sys
import time

import torch
from accelerate import Accelerator
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "worker" / "python"))
import ddprun  # noqa: E402


def main():
    folder, epochs = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    pause = float(sys.argv[3]) if len(sys.argv) > 3 else 0
    torch.set_num_threads(1)
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    net = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    inputs = torch.randn(160, 8)
    data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
    batches = ddprun.EpochBatches(len(data), 4, rank=0, world_size=1)
    for round in ddprun.accelerate_rounds(accelerator, net, optimizer, batches):
        with round, open(folder / f"samples-{round.rank}.jsonl", "a") as log:
            batches.set_world(accelerator.process_index, accelerator.num_processes)
            ddp, prepared = accelerator.prepare(net, optimizer)
            while batches.epoch < epochs:
                for images, labels in torch.utils.data.DataLoader(data, batch_sampler=batches):
                    log.write(json.dumps({"step": round.step + 1, "pid": os.getpid()}) + "\n")
                    log.flush()
                    torch.manual_seed(1000 * round.step + round.rank)
                    prepared.zero_grad()
                    accelerator.backward(nn.functional.mse_loss(ddp(images), labels) * batches.loss_weight())
                    prepared.step()
                    time.sleep(pause)
                    batches.end_step()
                    round.end_step()
                batches.end_epoch()
    if accelerator.is_main_process:
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "batches": batches.state_dict()}, folder / "end.pt")


if __name__ == "__main__":
    main()
