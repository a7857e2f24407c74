# SPDX-License-Identifier: Apache-2.0
"""Wrote the dumps in this folder, on a CPU:

    python record.py FOLDER             here with PyTorch 2.11, gloo-2.15/ with 2.15
    python record.py FOLDER stand-in    stand-in-2.15/, with 2.15

Of three ranks the last does not call the last all_reduce. The stand-in is a backend that calls itself nccl2 as NCCL's does, so that
c10d's own hook records it as it records nccl2, in the recorder of that name. It returns when a collective is over, and reports no
end of one, as nccl2 does: what is done is retired, and has not the state "completed"."""

import json
import multiprocessing
import os
import pathlib
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "e2e"))
WORLD = 3


def run(rank, folder, backend, barrier):
    import torch
    import torch.distributed as dist

    if backend == "stand-in":
        import stand_in_backend

        stand_in_backend.register(backend)
        asked = {"backend": "nccl2"}
    else:
        asked = {}
    dist.init_process_group(backend, init_method=f"file://{folder}/init", rank=rank, world_size=WORLD)
    pair = dist.new_group([0, 1])
    for _ in range(3):
        dist.all_reduce(torch.ones(3))
    if rank < 2:
        dist.broadcast(torch.zeros(2, 5, dtype=torch.int64), 0, group=pair)
        call_last(dist, torch, backend)
    recorder = torch._C._distributed_c10d
    waits = 1 if rank < 2 else 0
    # What is done is retired a moment later, and the last call begins in its own time.
    while sum(not entry["retired"] for entry in json.loads(recorder._dump_fr_trace_json(**asked))["entries"]) != waits:
        time.sleep(0.01)
    (folder / f"rank{rank}.pickle").write_bytes(recorder._dump_fr_trace(**asked))
    barrier.wait()
    os._exit(0)  # one that waits cannot end otherwise


def call_last(dist, torch, backend):
    if backend == "gloo":
        dist.all_reduce(torch.ones(256), async_op=True)
    else:
        import threading

        threading.Thread(target=dist.all_reduce, args=(torch.ones(256),), daemon=True).start()


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1]).resolve()
    target.mkdir(exist_ok=True)
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(WORLD)
    ranks = [context.Process(target=run, args=(rank, target, (sys.argv[2:] or ["gloo"])[0], barrier)) for rank in range(WORLD)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    (target / "init").unlink()
