# SPDX-License-Identifier: Apache-2.0
"""The peer of train_vs_python.py and first_step.py: the same training as a good user writes it in Python.

DistributedDataParallel with its defaults and gradient_as_bucket_view, SGD with momentum, eager, all batches in memory
before the clock starts: no DataLoader stands in its way. Rank 0 prints `steps N at TIME` after the steps that --marks names.
"""

import argparse
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--marks", type=int, nargs="+", required=True)
    parser.add_argument("--channels-last", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layout = torch.channels_last if options.channels_last else torch.contiguous_format
    model = make_model(options.model).to(memory_format=layout)
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
    step_model = torch.compile(ddp) if options.compile else ddp
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=0.0005)
    batches = [
        (torch.randn(options.batch_size, 3, 32, 32).contiguous(memory_format=layout),
         torch.randint(10, (options.batch_size,)))
        for _ in range(BATCHES)
    ]
    model.train()
    for step in range(max(options.marks)):
        images, labels = batches[step % BATCHES]
        optimizer.zero_grad()
        loss = F.cross_entropy(step_model(images), labels)
        loss.backward()
        optimizer.step()
        if step + 1 in options.marks and dist.get_rank() == 0:
            print("steps", step + 1, "at", time.time(), flush=True)
    dist.barrier()
    # See tests/e2e/all_reduce_and_ddp.py: torch 2.11 aborts now and then if a DDP model is left to the interpreter's end.
    del ddp, step_model
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
