# SPDX-License-Identifier: Apache-2.0
"""A plain torchrun program, with nothing of ddprun in it: an all_reduce and a few steps of DDP. Prints what it got."""

import gc
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    assert rank == int(os.environ["RANK"]) and world_size == int(os.environ["WORLD_SIZE"])

    total = torch.tensor([float(rank + 1)])
    dist.all_reduce(total)

    torch.manual_seed(rank)  # different on purpose: DDP makes all ranks start from rank 0's
    model = DistributedDataParallel(torch.nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(16, 8, generator=generator)).square().mean().backward()
        optimizer.step()
    weights = [torch.empty_like(model.module.weight) for _ in range(world_size)]
    dist.all_gather(weights, model.module.weight.detach())
    assert all(torch.equal(weights[0], other) for other in weights)
    print(f"rank {rank} of {world_size}: sum {total.item()}, weights {model.module.weight.double().sum().item():.12f}")
    # A DDP model is part of a cycle, so that it and its process group live on until the interpreter ends. torch 2.11 then
    # aborts now and then ("terminate called without an active exception"), under torchrun as well.
    del model, optimizer
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
