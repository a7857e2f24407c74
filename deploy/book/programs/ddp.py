# SPDX-License-Identifier: Apache-2.0
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if gpu else "gloo")
    device = f"cuda:{os.environ['LOCAL_RANK']}" if gpu else "cpu"
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(20, 2).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(100):
        images = torch.randn(64, 20, device=device)
        labels = (images[:, 0] > 0).long()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0 and dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
