# SPDX-License-Identifier: Apache-2.0
"""The package's callbacks in trainings of the real packages: what an agent hears of them."""

import itertools
import re
import socket
import sys
import threading

import pytest
from conftest import PYTHON, clean_environment, run

sys.path.insert(0, PYTHON)
from ddprun import progress  # noqa: E402

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
                                 gradient_accumulation_steps=2, eval_strategy="epoch", save_strategy="epoch", report_to=[],
                                 disable_tqdm=True, logging_steps=1)
trainer = hf.Trainer(model=Net(), args=arguments, train_dataset=rows, eval_dataset=rows,
                     callbacks=[ddprun.transformers_callback()])
trainer.train()
trainer.evaluate()
trainer.predict(rows)
"""
LIGHTNING = """
import pytorch_lightning as pl

class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 1)

    def training_step(self, batch, index):
        if self.fails:
            raise ValueError("as it is told")
        return nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def validation_step(self, batch, index):
        pass

    test_step = predict_step = validation_step
    fails = False

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

loader = DataLoader(data, batch_size=16)
module = Module()
trainer = pl.Trainer(accelerator="cpu", max_epochs=2, logger=False, enable_progress_bar=False, default_root_dir=sys.argv[1],
                     num_sanity_val_steps=0, callbacks=[ddprun.lightning_callback()], accumulate_grad_batches=2)
trainer.fit(module, loader, loader)
trainer.save_checkpoint(sys.argv[1] + "/last.ckpt")
trainer.validate(module, loader, verbose=False)
trainer.test(module, loader, verbose=False)
trainer.predict(module, loader)
module.fails = True
trainer.fit_loop.max_epochs = 4
try:
    trainer.fit(module, loader)
    sys.exit("it was to fail")
except ValueError:
    pass
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
    messages = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
        agent.bind(path)

        # The system keeps ten datagrams, and progress() waits for no room.
        def read_all():
            while (text := agent.recv(1024)) != b"end":
                messages.append(dict(re.findall(r"(\w+)=(.*)", text.decode())))

        reader = threading.Thread(target=read_all)
        reader.start()
        script = tmp_path / "training.py"
        script.write_text(NET + program)
        env = clean_environment(PYTHONPATH=PYTHON, OMP_NUM_THREADS="1")
        try:
            done = run([sys.executable, script, tmp_path], env={**env, "DDPRUN_NOTIFY_SOCKET": path})
        finally:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
                end.sendto(b"end", path)
            reader.join()
        assert done.returncode == 0, done.stderr
    return messages


def in_short(messages):
    """Their sections, each once for as often as it is repeated; a message that nothing is to be expected ends with "." ."""
    words = [message.get("SECTION", "") + ("." if message.get("WATCH") == "0" else "") for message in messages]
    return [(word, len(list(same))) for word, same in itertools.groupby(words)]


EPOCH_OF_TRANSFORMERS = [("train", 6), ("evaluation", 4), ("", 1), ("checkpoint", 1)]
EPOCH_OF_LIGHTNING = [("train", 2), ("evaluation", 2), ("checkpoint", 1)]


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (TRANSFORMERS, EPOCH_OF_TRANSFORMERS * 2 + [(".", 1), ("evaluation", 4), (".", 1), ("evaluation", 4), (".", 1)]),
        (
            LIGHTNING,
            EPOCH_OF_LIGHTNING * 2
            + [(".", 1), ("checkpoint.", 1), ("evaluation", 2), (".", 1), ("test", 2), (".", 1), ("prediction", 2), (".", 2)],
        ),
        (ACCELERATE, [("train", 8), (".", 1)]),
    ],
    ids=["transformers", "lightning", "accelerate"],
)
def test_each_batch_is_told_and_the_end_of_each_loop(tmp_path, program, expected):
    messages = heard(tmp_path, program)
    assert in_short(messages) == expected
    trained = [message for message in messages if message.get("SECTION") == "train"]
    steps = [int(message["STEP"]) for message in trained]
    assert steps == sorted(steps) and steps[-1] > 1
    assert trained[0]["EPOCH"] == "0" and [message["EPOCH"] for message in trained if "EPOCH" in message][-1] != "0"
    assert all(float(message["LOSS"]) > 0 for message in trained if "LOSS" in message) and any("LOSS" in message for message in trained)


def test_the_last_message_waits_for_an_agent_that_is_behind(tmp_path, monkeypatch):
    path = str(tmp_path / "notify")
    monkeypatch.setenv("DDPRUN_NOTIFY_SOCKET", path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
        agent.bind(path)
        agent.settimeout(60)
        for step in range(10000):  # more than any system keeps
            progress(step)
        last = threading.Thread(target=lambda: progress(watch=False))
        last.start()
        while agent.recv(1024) != b"WATCH=0\n":
            pass
        last.join()


def test_a_program_without_ddprun_goes_on_as_ever(tmp_path):
    script = tmp_path / "training.py"
    script.write_text(NET + ACCELERATE)
    done = run([sys.executable, script, tmp_path], env=clean_environment(PYTHONPATH=PYTHON))
    assert done.returncode == 0, done.stderr
