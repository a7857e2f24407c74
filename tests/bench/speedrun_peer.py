# SPDX-License-Identifier: Apache-2.0
"""The Python side of speedrun.py: `train --recipe speedrun` in plain PyTorch, on one GPU or a CPU, images and
augmentation on the device.

    speedrun_peer.py --dataset cifar10 --data-dir DIR [--precision half|bf16|float32] [--compile] [--seed 0]

Prints one JSON object: test_accuracy (six views), training_seconds (without imports, reading, warm-up and whitening),
evaluation_seconds (the six views of all test images). What airbench's own timer counts is their sum and the whitening.
--compile is torch.compile(mode="max-autotune"); it and --warmup train one epoch of noise first, which no timer counts.
half keeps the filters themselves in fp16, as airbench does; bf16 is torch.autocast, as in `train`.
"""

import argparse
import json
import math
import os
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
from parity_ddp import read_idx  # noqa: E402
from python_speedrun import Airbench, SpeedrunOptimizer, cut, six_views, whitening_filters  # noqa: E402

FASHION_MNIST = "/usr/share/datasets/fashion-mnist"
STATISTICS = {
    "fashion-mnist": ((0.2860,) * 3, (0.3530,) * 3),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
}
CIFAR_RECORD = 1 + 3 * 32 * 32


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=list(STATISTICS), default="cifar10")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--train-images", type=int, help="only so many, the first ones")
    parser.add_argument("--epochs", type=float, default=8)
    parser.add_argument("--batch-size", type=int, default=2000)
    parser.add_argument("--whiten-epochs", type=float, default=3)
    parser.add_argument("--width", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--precision", choices=["half", "bf16", "float32"], help="bf16 on a GPU if not given, else float32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--warmup", action="store_true")
    return parser.parse_args()


def read_cifar(folder, part):
    folder = folder / "cifar-10-batches-bin" if (folder / "cifar-10-batches-bin").is_dir() else folder
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] if part == "train" else ["test_batch.bin"]
    data = b"".join((folder / name).read_bytes() for name in names)
    records = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(-1, CIFAR_RECORD)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].long()


def load(options, part, device):
    """Normalised on the device."""
    if options.dataset == "cifar10":
        default = Path(os.environ.get("DDPRUN_CACHE_DIR", Path.home() / ".cache" / "ddprun")) / "data"
        images, labels = read_cifar(options.data_dir or default, part)
    else:
        folder, name = options.data_dir or FASHION_MNIST, "train" if part == "train" else "t10k"
        images = F.pad(read_idx(folder, f"{name}-images-idx3-ubyte"), (2, 2, 2, 2))[:, None].expand(-1, 3, -1, -1)
        labels = read_idx(folder, f"{name}-labels-idx1-ubyte").long()
    mean, deviation = (torch.tensor(values, device=device).view(3, 1, 1) for values in STATISTICS[options.dataset])
    images = images.to(device).float().div(255).sub(mean).div(deviation)
    return images.contiguous(memory_format=torch.channels_last), labels.to(device)


class Timer:
    """Seconds of what has ended on the device."""

    def __init__(self, device):
        self.device = device
        self.begun = self.now()

    def now(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def seconds(self):
        return self.now() - self.begun


def train(options, model, forward, images, labels):
    device = images.device
    # fp16 cannot hold the gradients of a mean; those of a sum it can.
    scale = options.batch_size if images.dtype == torch.float16 else 1
    per_epoch = len(images) // options.batch_size
    steps = max(1, math.floor(options.epochs * per_epoch + 0.5))
    matrices = torch.bfloat16 if device.type == "cuda" else torch.float32
    optimizer = SpeedrunOptimizer(model, steps, per_epoch, options.batch_size, options.whiten_epochs, matrices, scale)
    padded = F.pad(images, (2, 2, 2, 2), mode="reflect").contiguous(memory_format=torch.channels_last)
    mirrored = torch.rand(len(images), device=device) < 0.5
    model.train()
    for step in range(steps):
        if step % per_epoch == 0:
            order = torch.randperm(len(images), device=device)
            shifts = torch.randint(-2, 3, (2, len(images)), device=device)
            mirrored = mirrored if step == 0 else ~mirrored
        first = step % per_epoch * options.batch_size
        indices = order[first : first + options.batch_size]
        batch = cut(padded[indices], shifts[0, indices], shifts[1, indices], mirrored[indices])
        optimizer.zero_grad()
        model.trains_whitening = optimizer.trains_whitening()
        loss = F.cross_entropy(forward(batch).float(), labels[indices], label_smoothing=0.2)
        (loss * scale).backward()
        optimizer.step()


@torch.no_grad()
def accuracy(model, forward, images, labels):
    model.eval()
    right = sum(
        (six_views(forward, batch).argmax(1) == names).sum()
        for batch, names in zip(images.split(2000), labels.split(2000))
    )
    return right.item() / len(images)


def initialise(options, model, images):
    torch.manual_seed(options.seed)
    fresh = Airbench(classes=10, width=options.width)
    fresh.whiten.weight.data.copy_(whitening_filters(images[:5000].float()))
    model.load_state_dict(fresh.state_dict())


def main():
    options = parse_arguments()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    if device.type == "cpu":
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    precision = options.precision or ("bf16" if device.type == "cuda" else "float32")
    images, labels = load(options, "train", device)
    images, labels = images[: options.train_images], labels[: options.train_images]
    test_images, test_labels = load(options, "test", device)
    model = Airbench(classes=10, width=options.width).to(device, memory_format=torch.channels_last)
    if precision == "half":
        for module in model.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                module.half()
        images, test_images = images.half(), test_images.half()
    compiled = torch.compile(model, mode="max-autotune") if options.compile else model

    def forward(batch):
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            return compiled(batch)

    if options.compile or options.warmup:
        warm = argparse.Namespace(**{**vars(options), "epochs": 4 if options.compile else 1})
        noise = torch.randint(10, (len(images),), device=device)
        train(warm, model, forward, images, noise)
        accuracy(model, forward, test_images, test_labels)
    initialise(options, model, images)
    timer = Timer(device)
    train(options, model, forward, images, labels)
    training_seconds = timer.seconds()
    timer = Timer(device)
    share = accuracy(model, forward, test_images, test_labels)
    result = {"test_accuracy": share, "training_seconds": training_seconds, "evaluation_seconds": timer.seconds()}
    print(json.dumps({**result, "device": str(device), "precision": precision, "compiled": options.compile}), flush=True)


if __name__ == "__main__":
    main()
