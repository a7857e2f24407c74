# SPDX-License-Identifier: Apache-2.0
"""The package's callbacks in trainings of the real packages: what an agent hears of them."""

import re
import socket
import sys

import pytest
from conftest import PYTHON, clean_environment, run

NET = """
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import ddprun

inputs = torch.randn(32, 8)
data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
"""
TRANSFORMERS = """
import transformers as hf

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 1)

    def forward(self, x, labels):
        out = self.net(x)
        return {"loss": nn.functional.mse_loss(out, labels), "logits": out}

rows = [{"x": x, "labels": y} for x, y in data]
arguments = hf.TrainingArguments(output_dir=sys.argv[1], use_cpu=True, per_device_train_batch_size=8, num_train_epochs=2,
                                 eval_strategy="epoch", save_strategy="epoch", report_to=[], disable_tqdm=True)
hf.Trainer(model=Net(), args=arguments, train_dataset=rows, eval_dataset=rows,
           callbacks=[ddprun.transformers_callback()]).train()
"""
LIGHTNING = """
import pytorch_lightning as pl

class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 1)

    def training_step(self, batch, index):
        return nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def validation_step(self, batch, index):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

pl.Trainer(accelerator="cpu", max_epochs=2, logger=False, enable_progress_bar=False, default_root_dir=sys.argv[1],
           num_sanity_val_steps=0, callbacks=[ddprun.lightning_callback()]).fit(
    Module(), DataLoader(data, batch_size=8), DataLoader(data, batch_size=8))
"""
ACCELERATE = """
from accelerate import Accelerator

accelerator = Accelerator(cpu=True, log_with=ddprun.accelerate_tracker())
accelerator.init_trackers("run")
for step in range(1, 9):
    accelerator.log({"loss": 1.0, "epoch": (step - 1) // 4}, step=step)
accelerator.end_training()
"""


def heard(tmp_path, program):
    """What the agent of the test's own hears: a list of {key: value}."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
        agent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        agent.bind(path)
        script = tmp_path / "training.py"
        script.write_text(NET + program)
        env = clean_environment(PYTHONPATH=PYTHON, OMP_NUM_THREADS="1")
        done = run([sys.executable, script, tmp_path], env={**env, "DDPRUN_NOTIFY_SOCKET": path})
        assert done.returncode == 0, done.stderr
        agent.setblocking(False)
        messages = []
        while True:
            try:
                messages.append(dict(re.findall(r"(\w+)=(.*)", agent.recv(1024).decode())))
            except BlockingIOError:
                return messages


# A socket of this kind holds ten messages unless the system is told otherwise, so the last ones may be missing.
@pytest.mark.parametrize(
    ("program", "sections"),
    [
        (TRANSFORMERS, ["train"] * 4 + ["evaluation"] * 4 + ["checkpoint"]),
        (LIGHTNING, ["train"] * 4 + ["evaluation"] * 4),
        (ACCELERATE, ["train"] * 8),
    ],
    ids=["transformers", "lightning", "accelerate"],
)
def test_steps_and_sections_are_told(tmp_path, program, sections):
    messages = heard(tmp_path, program)
    assert [message["SECTION"] for message in messages[: len(sections)]] == sections
    steps = [int(message["STEP"]) for message in messages]
    assert steps[:4] == [1, 2, 3, 4]
    assert steps == sorted(steps)
    assert [message["EPOCH"] for message in messages[:3]] == ["0"] * 3


def test_a_program_without_ddprun_goes_on_as_ever(tmp_path):
    script = tmp_path / "training.py"
    script.write_text(NET + ACCELERATE)
    done = run([sys.executable, script, tmp_path], env=clean_environment(PYTHONPATH=PYTHON))
    assert done.returncode == 0, done.stderr
