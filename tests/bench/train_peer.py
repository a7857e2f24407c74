# SPDX-License-Identifier: Apache-2.0
"""The peer of train_vs_python.py, first_step.py and tests/gpu: the same training as a good user writes it in Python.

SGD with momentum, all batches in memory before the clock starts: no DataLoader stands in its way. Where a launcher has set
RANK, DistributedDataParallel with its defaults and gradient_as_bucket_view; alone without, since one process needs none. On
a GPU: batches on the device, TF32, cuDNN's choice by trial, the fused optimizer. Rank 0 prints `steps N at TIME` after the
steps that --marks names. With --serve a process that is alone then takes numbers from its input, a line each, does so
many steps for each and prints `window STEPS SECONDS`, so that programs can be measured in turn without a start for each.
"""

import argparse
import contextlib
import gc
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from python_models import make_model  # noqa: E402

BATCHES = 8  # which come again and again
AMP = {"off": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--input-size", type=int, default=32)
    parser.add_argument("--stem", default="cifar")
    parser.add_argument("--marks", type=int, nargs="+", required=True)
    parser.add_argument("--channels-last", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--compile", nargs="?", const="default", choices=["default", "max-autotune"])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--amp", default="off", choices=AMP)
    parser.add_argument("--serve", action="store_true")
    return parser.parse_args()


class Training:
    """The model, its optimizer and the batches, on the device."""

    def __init__(self, options, distributed):
        self.options = options
        self.device = torch.device(options.device)
        layout = torch.channels_last if options.channels_last else torch.contiguous_format
        model = make_model(options.model, stem=options.stem).to(self.device, memory_format=layout)
        self.model = DistributedDataParallel(model, gradient_as_bucket_view=True) if distributed else model
        self.optimizer = torch.optim.SGD(
            model.parameters(), lr=0.01, momentum=0.9, weight_decay=0.0005, fused=True if options.device == "cuda" else None
        )
        self.scaler = torch.amp.GradScaler(options.device, enabled=options.amp == "fp16")
        self.step_model = torch.compile(self.model, mode=options.compile) if options.compile else self.model
        self.batches = [
            (torch.randn(options.batch_size, 3, options.input_size, options.input_size).to(self.device, memory_format=layout),
             torch.randint(10, (options.batch_size,)).to(self.device))
            for _ in range(BATCHES)
        ]
        self.steps = 0
        model.train()

    def precision(self):
        kind = AMP[self.options.amp]
        return torch.autocast(self.options.device, kind) if kind else contextlib.nullcontext()

    def step(self):
        images, labels = self.batches[self.steps % BATCHES]
        self.optimizer.zero_grad()
        with self.precision():
            loss = F.cross_entropy(self.step_model(images), labels)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.steps += 1

    def finish(self):
        """Waits until the device has done all that was queued."""
        if self.options.device == "cuda":
            torch.cuda.synchronize()

    def serve(self):
        for line in sys.stdin:
            begin = time.monotonic()
            for _ in range(int(line)):
                self.step()
            self.finish()
            print("window", int(line), time.monotonic() - begin, flush=True)


def main():
    options = parse_arguments()
    distributed = "RANK" in os.environ
    if options.serve and distributed:
        sys.exit("--serve is for a process that is alone; start it without a launcher")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if options.device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
    if distributed:
        dist.init_process_group("nccl" if options.device == "cuda" else "gloo")
    torch.manual_seed(0)
    training = Training(options, distributed)
    for step in range(max(options.marks)):
        training.step()
        if step + 1 in options.marks:
            training.finish()
            if not distributed or dist.get_rank() == 0:
                print("steps", step + 1, "at", time.time(), flush=True)
    if options.serve:
        training.serve()
    if distributed:
        dist.barrier()
        # See tests/e2e/all_reduce_and_ddp.py: torch 2.11 aborts now and then if a DDP model is left to the interpreter's
        # end.
        del training
        gc.collect()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
