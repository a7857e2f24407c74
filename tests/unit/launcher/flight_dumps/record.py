# SPDX-License-Identifier: Apache-2.0
"""Wrote the dumps in this folder, with PyTorch 2.11 on a CPU: `python record.py FOLDER`. Of three ranks the last does not
call the last all_reduce."""

import json
import multiprocessing
import os
import pathlib
import sys
import time

WORLD = 3


def run(rank, folder, barrier):
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{folder}/init", rank=rank, world_size=WORLD)
    pair = dist.new_group([0, 1])
    for _ in range(3):
        dist.all_reduce(torch.ones(3))
    if rank < 2:
        dist.broadcast(torch.zeros(2, 5, dtype=torch.int64), 0, group=pair)
        dist.all_reduce(torch.ones(256), async_op=True)
    recorder = torch._C._distributed_c10d
    waits = 1 if rank < 2 else 0
    # What is done is retired a moment later.
    while sum(not entry["retired"] for entry in json.loads(recorder._dump_fr_trace_json())["entries"]) > waits:
        time.sleep(0.01)
    (folder / f"rank{rank}.pickle").write_bytes(recorder._dump_fr_trace())
    barrier.wait()
    os._exit(0)  # one that waits cannot end otherwise


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1]).resolve()
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(WORLD)
    ranks = [context.Process(target=run, args=(rank, target, barrier)) for rank in range(WORLD)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    (target / "init").unlink()
