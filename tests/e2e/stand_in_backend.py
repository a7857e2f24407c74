# SPDX-License-Identifier: Apache-2.0
"""A backend of torch.distributed for CPUs which calls itself nccl2, so that c10d's hook records it as it records NCCL's (PyTorch
2.15). Its collectives move no data: each ends when all ranks have called it."""

import torch.distributed as dist
from torch._C._distributed_c10d import Backend


class Done(dist._Work):
    def wait(self, timeout=None):
        return True

    def is_completed(self):
        return True


class StandIn(Backend):
    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self.store, self.calls, self.timeout = store, 0, timeout

    def getBackendName(self):
        return "nccl2"

    def meet(self):
        self.calls += 1
        self.store.set(f"{self.calls}/{self.rank()}", b"")
        self.store.wait([f"{self.calls}/{rank}" for rank in range(self.size())], self.timeout)
        return Done()

    def allreduce(self, tensors, options):
        return self.meet()

    def broadcast(self, tensors, options):
        return self.meet()

    def barrier(self, options):
        return self.meet()


def register(name):
    dist.Backend.register_backend(name, StandIn, devices=["cpu"])
