# SPDX-License-Identifier: Apache-2.0
"""A training by transformers.Trainer whose ranks are kept: kept_trainer.py FOLDER EPOCHS [SECONDS]. Each rank logs its complete steps
into FOLDER/samples-RANK.jsonl; rank 0 writes the network, its optimizer and the Trainer's log to FOLDER/end.pt. SECONDS: of sleep in
each step."""

import json
import os
import pathlib
import sys
import time

import torch
import transformers as hf
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "worker" / "python"))
import ddprun  # noqa: E402


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 1))

    def forward(self, x, labels):
        out = self.net(x)
        return {"loss": nn.functional.mse_loss(out, labels), "logits": out}


class Log(hf.TrainerCallback):
    def __init__(self, folder, pause):
        self.folder, self.pause = folder, pause

    def on_step_end(self, args, state, control, **kwargs):
        with open(self.folder / f"samples-{args.process_index}.jsonl", "a") as log:
            log.write(json.dumps({"step": state.global_step, "pid": os.getpid()}) + "\n")
        time.sleep(self.pause)


def main():
    folder, epochs = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    arguments = hf.TrainingArguments(
        output_dir=str(folder / "out"), use_cpu=True, per_device_train_batch_size=4, num_train_epochs=epochs, disable_tqdm=True, report_to=[],
        eval_strategy="steps", eval_steps=7, save_strategy="steps", save_steps=20, logging_steps=5, learning_rate=0.01, seed=3, save_total_limit=2,
    )  # fmt: skip
    hf.set_seed(3)
    inputs = torch.randn(160, 8)
    rows = [{"x": x, "labels": x.sum(0, keepdim=True)} for x in inputs]
    log = Log(folder, float(sys.argv[3]) if len(sys.argv) > 3 else 0)
    trainer = hf.Trainer(Net(), arguments, train_dataset=rows, eval_dataset=rows[:32], callbacks=[log])
    ddprun.transformers_train(trainer)
    metrics = trainer.evaluate()
    if trainer.is_world_process_zero():
        kept = ("eval_loss", "grad_norm", "learning_rate", "epoch", "step")  # "loss" is an average with a part of each rank's own
        log = [{name: entry[name] for name in kept if name in entry} for entry in trainer.state.log_history]
        end = {"net": trainer.model.state_dict(), "optimizer": trainer.optimizer.state_dict(), "log": log, "loss": metrics["eval_loss"]}
        torch.save(end, folder / "end.pt")


if __name__ == "__main__":
    main()
