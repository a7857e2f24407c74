# SPDX-License-Identifier: Apache-2.0
"""A training whose ranks are kept, in Python: kept_training.py FOLDER STEPS [SECONDS]. Each rank logs the steps that it begins into
FOLDER/samples-RANK.jsonl; rank 0 writes the network and its optimizer to FOLDER/end.pt. A step depends on its number, the rank
and the state alone. SECONDS: of sleep in each step. A file FOLDER/die-RANK, fail-RANK or cut-RANK makes that rank do so."""

import json
import os
import pathlib
import signal
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "worker" / "python"))
import ddprun  # noqa: E402


def told(folder, what, rank):
    """Once for each time that a test makes the file."""
    try:
        (folder / f"{what}-{rank}").unlink()
    except FileNotFoundError:
        return False
    return True


def state_of(folder):
    """What end.pt has, as bytes that do not depend on how it was pickled."""
    out = []

    def add(name, value):
        if isinstance(value, torch.Tensor):
            out.append((name, value.shape, value.numpy().tobytes()))
        elif isinstance(value, dict):
            for key in value:
                add(f"{name}.{key}", value[key])
        else:
            out.append((name, repr(value)))

    add("", torch.load(f"{folder}/end.pt", weights_only=False))
    return out


def main():
    folder, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    pause = float(sys.argv[3]) if len(sys.argv) > 3 else 0
    torch.set_num_threads(1)
    torch.manual_seed(0)
    norm = nn.BatchNorm2d if os.environ.get("WITH_BATCH_NORM") else lambda width: nn.GroupNorm(2, width)
    net = nn.Sequential(nn.Conv2d(3, 16, 3), norm(16), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(784, 10))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.001)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 50, 0.9)
    wrap = {"find_unused_parameters": not os.environ.get("WITH_BUCKETS_OF_THE_ORDER")}  # else never other buckets than at first
    for round in ddprun.rounds(net, optimizer, schedule, backend="gloo"):
        with round, open(folder / f"samples-{round.rank}.jsonl", "a") as log:
            ddp = DistributedDataParallel(net, **wrap) if os.environ.get("WITH_OWN_DDP") else round.ddp(net, **wrap)
            objects = {"pid": os.getpid(), "ddp": id(ddp), "group": id(torch.distributed.group.WORLD)}
            while round.step < steps:
                log.write(json.dumps({"step": round.step + 1, **objects}) + "\n")
                log.flush()
                torch.manual_seed(1000 * round.step + round.rank)
                images, labels = torch.randn(8, 3, 32, 32), torch.randint(10, (8,))
                optimizer.zero_grad()
                loss = F.cross_entropy(ddp(images), labels)
                if told(folder, "die", round.rank):
                    os.kill(os.getpid(), signal.SIGKILL)
                loss.backward()
                optimizer.step()
                schedule.step()
                time.sleep(pause)
                round.end_step()
                if told(folder, "fail", round.rank):
                    raise ValueError("an error of its own")
                if told(folder, "cut", round.rank):
                    round._connections.shut()
    if round.rank == 0:
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}, folder / "end.pt")


if __name__ == "__main__":
    main()
