# SPDX-License-Identifier: Apache-2.0
"""The Python side of accuracy_vs_python.py: one training with PyTorch's DistributedDataParallel, from initial parameters
and augmentation of its own, and the accuracy on the test images.

    torchrun --nproc-per-node 2 accuracy_peer.py --epochs 3 ...
"""

import argparse
import gc
import json
import math
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
from parity_ddp import read_idx  # noqa: E402
from python_models import make_model  # noqa: E402

FOLDER = "/usr/share/datasets/fashion-mnist"
MEAN, DEVIATION = 0.2860, 0.3530


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--warmup-epochs", type=float, required=True)
    parser.add_argument("--weight-decay", type=float, default=0.0005)
    parser.add_argument("--seed", type=int, required=True)
    return parser.parse_args()


def load(part):
    images = F.pad(read_idx(FOLDER, f"{part}-images-idx3-ubyte"), (2, 2, 2, 2))
    return images, read_idx(FOLDER, f"{part}-labels-idx1-ubyte").long()


def normalised(images):
    images = images.float().div(255).sub(MEAN).div(DEVIATION)
    return images.unsqueeze(1).expand(-1, 3, 32, 32).contiguous(memory_format=torch.channels_last)


def augmented(images, generator):
    """RandomCrop(32, padding=4) and RandomHorizontalFlip, for each image on its own."""
    padded = F.pad(images, (4, 4, 4, 4))
    size = len(images)
    top, left = torch.randint(9, (2, size), generator=generator)
    rows = (top[:, None] + torch.arange(32))[:, :, None]
    flip = torch.rand(size, generator=generator) < 0.5
    columns = torch.where(flip[:, None], torch.arange(31, -1, -1), torch.arange(32))
    columns = (left[:, None] + columns)[:, None, :]
    return padded[torch.arange(size)[:, None, None], rows, columns]


def train(options, model):
    images, labels = load("train")
    generator = torch.Generator().manual_seed(1000 * options.seed + dist.get_rank())
    sampler = DistributedSampler(labels, shuffle=True, seed=options.seed)
    steps_per_epoch = math.ceil(len(sampler) / options.batch_size)
    steps = options.epochs * steps_per_epoch
    warmup = round(options.warmup_epochs * steps_per_epoch)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=options.lr, momentum=0.9, weight_decay=options.weight_decay, nesterov=True
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: (step + 1) / warmup
        if step < warmup
        else 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))),
    )
    model.train()
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        order = torch.tensor(list(sampler))
        for indices in order.split(options.batch_size):
            batch = normalised(augmented(images[indices], generator))
            optimizer.zero_grad()
            F.cross_entropy(model(batch), labels[indices]).backward()
            optimizer.step()
            schedule.step()


@torch.no_grad()
def accuracy(model):
    images, labels = load("t10k")
    model.eval()
    right = sum(
        int((model(normalised(images[i : i + 250])).argmax(1) == labels[i : i + 250]).sum())
        for i in range(0, len(images), 250)
    )
    return right / len(images)


def main():
    options = parse_arguments()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dist.init_process_group("gloo")
    torch.manual_seed(options.seed)
    model = make_model(options.model, shared_blocks=False).to(memory_format=torch.channels_last)
    ddp = DistributedDataParallel(model)
    begun = time.monotonic()
    train(options, ddp)
    if dist.get_rank() == 0:
        seconds = time.monotonic() - begun
        print(json.dumps({"test_accuracy": accuracy(model), "training_seconds": seconds}), flush=True)
    dist.barrier()
    del ddp
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
