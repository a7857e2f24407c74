# SPDX-License-Identifier: Apache-2.0
"""A training that saves and ends when a machine of its run will be taken away, and goes on from there when it is started again:

    ddprun --nnodes 2 ... --notice-on-signal SIGUSR1 --notice-grace 120 worker/python/examples/save_on_notice.py CHECKPOINT STEPS

One machine gets the notice and every rank hears of it, each at another moment. A checkpoint needs all of them at one step, so
each step's all-reduce carries the flag too: all ranks see it in the same step."""

import os
import sys
import threading

import ddprun
import torch
import torch.distributed as dist


@ddprun.record
def main(path, steps):
    noticed = threading.Event()

    def on_notice(seconds):
        print(f"rank {os.environ['RANK']}: {seconds:.0f} s left, saving", flush=True)
        noticed.set()

    ddprun.on_notice(on_notice)
    dist.init_process_group("gloo")
    weight, step = torch.zeros(4), 0
    if os.path.exists(path):
        saved = torch.load(path)
        weight, step = saved["weight"], saved["step"]

    while step < steps:
        gradient = weight - 1 + 0.1 * torch.randn(4)
        together = torch.cat([gradient, torch.tensor([float(noticed.is_set())])])
        dist.all_reduce(together)
        weight -= 0.01 * together[:4] / dist.get_world_size()
        step += 1
        ddprun.progress(step)
        if together[4] > 0:
            break

    if dist.get_rank() == 0:
        torch.save({"weight": weight, "step": step}, path + ".part")
        os.replace(path + ".part", path)
        print(f"saved step {step} of {steps}", flush=True)
    dist.barrier()  # no rank ends, and none is missed by ddprun, before the checkpoint is there
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
