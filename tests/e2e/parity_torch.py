# SPDX-License-Identifier: Apache-2.0
"""What torch itself says in a worker: `parity_torch.py FOLDER`, as JSON. Once as torch.distributed sets itself up, and
once by the store that a program makes at MASTER_ADDR:MASTER_PORT as TORCHELASTIC_USE_AGENT_STORE has it."""

import datetime
import json
import os
import pathlib
import socket
import sys

import torch
import torch.distributed as dist
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing.errors import record

TIMEOUT = datetime.timedelta(seconds=60)


def own_store():
    """As many programs do: rank 0 serves it, unless an agent does."""
    agents = os.environ["TORCHELASTIC_USE_AGENT_STORE"] == "True"
    return dist.TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=not agents and os.environ["RANK"] == "0",
        timeout=TIMEOUT,
        multi_tenant=True,
        wait_for_workers=False,
    )


@record
def main():
    said = {
        "launched": dist.is_torchelastic_launched(),
        "local rank": dist.get_node_local_rank(),
        "threads": torch.get_num_threads(),
        "host": LocalElasticAgent._get_fq_hostname(None) == socket.getfqdn(socket.gethostname()),
    }
    store = dist.PrefixStore("mine", own_store())
    store.set(f"rank {os.environ['RANK']}", os.environ["LOCAL_RANK"])
    store.wait([f"rank {rank}" for rank in range(int(os.environ["WORLD_SIZE"]))], TIMEOUT)
    said["stored"] = [store.get(f"rank {rank}").decode() for rank in range(int(os.environ["WORLD_SIZE"]))]
    dist.init_process_group("gloo", timeout=TIMEOUT)
    total = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(total)
    objects = [None] * dist.get_world_size()
    dist.all_gather_object(objects, os.environ["GROUP_RANK"])
    said |= {
        "rank": dist.get_rank(),
        "world": dist.get_world_size(),
        "backend": dist.get_backend(),
        "sum": total.item(),
        "nodes": objects,
        "store": type(dist.distributed_c10d._get_default_store()).__name__,
    }
    dist.barrier()
    dist.destroy_process_group()
    pathlib.Path(sys.argv[1], f"{said['rank']}.said").write_text(json.dumps(said))


main()
