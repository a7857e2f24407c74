# SPDX-License-Identifier: Apache-2.0
"""Trains with PyTorch's own DistributedDataParallel what `train` trained, and compares every number.

    train --max-steps 0 ... --output-dir A          (the initial parameters)
    ddprun ... train --max-steps 20 --no-augment ... --output-dir B
    torchrun --nproc-per-node 2 parity_ddp.py --init A/cifar_net.pth --final B/cifar_net.pth --steps 20 [-- --init ...]

Rank 0 prints the largest difference, and the exit code is 1 if it is above --tolerance. The defaults are train's. Several
trainings, with -- between their flags, are made one after the other: to import torch takes longer than most of them.
"""

import argparse
import contextlib
import gc
import gzip
import itertools
import math
import os
import struct
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

sys.path.insert(0, str(Path(__file__).resolve().parent))
from python_models import make_model  # noqa: E402


def parse_arguments(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("--init", required=True, help="cifar_net.pth of train --max-steps 0")
    parser.add_argument("--final", required=True, help="cifar_net.pth of train --max-steps STEPS")
    parser.add_argument("--model", default="netresdeep")
    parser.add_argument("--shared-blocks", action=argparse.BooleanOptionalAction, default=False)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--warmup-epochs", type=float, default=0.5)
    parser.add_argument("--warmup-steps", type=int, help="instead of --warmup-epochs")
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=0.0005)
    parser.add_argument("--nesterov", action=argparse.BooleanOptionalAction, default=None)
    parser.add_argument("--optimizer", choices=["sgd", "adam", "adamw"], default="sgd")
    parser.add_argument("--schedule", choices=["cosine", "one-cycle", "linear", "constant"], default="cosine")
    parser.add_argument("--label-smoothing", type=float, default=0)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--clip-norm", type=float, default=0)
    parser.add_argument("--ema-decay", type=float, default=0)
    parser.add_argument("--amp", choices=["off", "bf16"], default="off")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dataset", choices=["fashion-mnist"], default="fashion-mnist")
    parser.add_argument("--data-dir", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--channels-last", action=argparse.BooleanOptionalAction, default=True)
    # So that one list of flags does for both programs.
    parser.add_argument("--no-augment", action="store_true", help="as it always is here")
    parser.add_argument("--no-eval", action="store_true", help="as it always is here")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    return parser.parse_args(arguments)


def read_idx(folder, name):
    path = Path(folder) / name
    data = path.read_bytes() if path.exists() else gzip.open(f"{path}.gz").read()
    dimensions = data[3]
    shape = struct.unpack(f">{dimensions}I", data[4 : 4 + 4 * dimensions])
    return torch.frombuffer(bytearray(data[4 + 4 * dimensions :]), dtype=torch.uint8).view(shape)


class Images(Dataset):
    """Fashion-MNIST as 3x32x32, normalised."""

    def __init__(self, folder):
        self.images = F.pad(read_idx(folder, "train-images-idx3-ubyte"), (2, 2, 2, 2))
        self.labels = read_idx(folder, "train-labels-idx1-ubyte").long()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index].float().div(255).sub(0.2860).div(0.3530)
        return image.expand(3, 32, 32), self.labels[index]


def learning_rates(options, warmup):
    """Of every step; one-cycle and linear as torch.optim.lr_scheduler has them."""
    if options.schedule == "one-cycle":
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, options.lr, total_steps=options.steps, cycle_momentum=False
        )
        rates = []
        for _ in range(options.steps):
            rates.append(schedule.get_last_lr()[0])
            optimizer.step()
            if len(rates) < options.steps:
                schedule.step()
        return rates
    falls = {
        "cosine": lambda done: 0.5 * (1 + math.cos(math.pi * done)),
        "linear": lambda done: 1 - done,
        "constant": lambda done: 1,
    }[options.schedule]
    length = max(1, options.steps - warmup)
    rising = [options.lr * (step + 1) / warmup for step in range(warmup)]
    return rising + [options.lr * falls((step - warmup) / length) for step in range(warmup, options.steps)]


def make_optimizer(options, model):
    if options.optimizer in ("adam", "adamw"):
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[options.optimizer]
        return kind(model.parameters(), lr=options.lr, weight_decay=options.weight_decay, fused=True)
    return torch.optim.SGD(
        model.parameters(),
        lr=options.lr,
        momentum=options.momentum,
        weight_decay=options.weight_decay,
        nesterov=options.momentum > 0 if options.nesterov is None else options.nesterov,
    )


def batches(options):
    """Of all epochs."""
    data = Images(options.data_dir)
    sampler = DistributedSampler(data, shuffle=True, seed=options.seed, drop_last=False)
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        for images, labels in DataLoader(data, batch_size=options.batch_size, sampler=sampler):
            yield images.contiguous(memory_format=torch.channels_last) if options.channels_last else images, labels
        epoch += 1


def train(options, model, average):
    optimizer = make_optimizer(options, model)
    warmup = options.warmup_steps
    if warmup is None:
        epoch = math.ceil(60000 / dist.get_world_size() / options.batch_size / options.accumulate)
        warmup = math.floor(options.warmup_epochs * epoch + 0.5)
    rates = learning_rates(options, min(warmup, options.steps))
    source = batches(options)
    model.train()
    for step in range(options.steps):
        for group in optimizer.param_groups:
            group["lr"] = rates[step]
        optimizer.zero_grad()
        for i in range(options.accumulate):
            images, labels = (tensor.to(options.device) for tensor in next(source))
            last = i + 1 == options.accumulate
            with contextlib.nullcontext() if last else model.no_sync():
                with torch.autocast(options.device, torch.bfloat16, enabled=options.amp == "bf16"):
                    loss = F.cross_entropy(model(images), labels, label_smoothing=options.label_smoothing)
                (loss / options.accumulate).backward()
        if options.clip_norm:
            torch.nn.utils.clip_grad_norm_(model.parameters(), options.clip_norm)
        optimizer.step()
        if average:
            average.update_parameters(model.module)


def is_equal(options, ours):
    ours = {key: value.cpu() for key, value in ours.items()}
    theirs = torch.load(options.final)
    initial = torch.load(options.init)
    if list(theirs) != list(ours):
        print(f"{options.final}: its keys are not those of Python's model: {sorted(set(theirs) ^ set(ours))}", flush=True)
        return False
    difference = {key: (theirs[key].double() - ours[key].double()).abs().max().item() for key in ours}
    parameters = [key for key in ours if key.endswith((".weight", ".bias"))]
    moved = max((ours[key] - initial[key]).abs().max().item() for key in parameters)
    worst = max(difference, key=difference.get)
    of_parameters = max(difference[key] for key in parameters)
    # `not <=` so that a NaN counts as a difference.
    equal = not any(not value <= options.tolerance for value in difference.values())
    print(
        f"{options.final}: {'equal' if equal else 'NOT EQUAL'}: max difference {difference[worst]:.3g} (in {worst}; of parameters {of_parameters:.3g}) after {options.steps} steps of {dist.get_world_size()} "
        f"ranks; training moved parameters by up to {moved:.3g}; tolerance {options.tolerance:g}",
        flush=True,
    )
    if moved == 0 and options.steps > 0:
        sys.exit("nothing was trained: the comparison says nothing")
    return equal


def train_and_compare(options):
    model = make_model(options.model, options.shared_blocks)
    model.load_state_dict(torch.load(options.init))
    if options.channels_last:
        model = model.to(memory_format=torch.channels_last)
    model = model.to(options.device)
    ddp = DistributedDataParallel(model)
    average = None
    if options.ema_decay:
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(options.ema_decay))
        # AveragedModel's first update copies; here the average begins with the initial weights, as in train.
        average.n_averaged.fill_(1)
    train(options, ddp, average)
    result = model.state_dict()
    if average:
        result.update((name, value) for name, value in average.module.named_parameters())
    equal = dist.get_rank() != 0 or is_equal(options, result)
    dist.barrier()
    # See all_reduce_and_ddp.py: torch 2.11 aborts now and then if a DDP model is left to the interpreter's end.
    del ddp
    gc.collect()
    return equal


def main():
    trainings = [list(flags) for is_end, flags in itertools.groupby(sys.argv[1:], lambda word: word == "--") if not is_end]
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    options = [parse_arguments(flags) for flags in trainings or [[]]]
    on_gpu = any(one.device == "cuda" for one in options)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    torch.backends.cudnn.deterministic = True
    equal = [train_and_compare(one) for one in options]
    dist.destroy_process_group()
    sys.exit(0 if all(equal) else 1)


if __name__ == "__main__":
    main()
