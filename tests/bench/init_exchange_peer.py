#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of init_exchange.py: the same exchanges over the agent's listener and over a TCPStore in rank 0, in turn."""

import datetime
import json
import os
import pathlib
import sys
import time

from torch.distributed import TCPStore

TIMEOUT = datetime.timedelta(seconds=120)
VALUE_BYTES = 64
# Of a repeat. Those at once take a tenth of the time of those one by one.
KINDS = ("one by one", *["at once"] * 4)
# From the last arrival at the start line to the start: until then all sleep, the agent too, whose store the line is in.
HEAD_START_S = 0.2


def value_of(prefix, rank):
    return f"{prefix} {rank} ".encode().ljust(VALUE_BYTES, b".")


def start_line(store, name, world):
    """All leave it at the same time."""
    if store.add(f"{name}/there", 1) == world:
        store.set(f"{name}/go", repr(time.monotonic() + HEAD_START_S))
    go = float(store.get(f"{name}/go"))
    time.sleep(max(0.0, go - time.monotonic()))


def exchange(store, prefix, rank, world, at_once):
    """Sets its key, gets those of all others and passes a barrier. Returns when it began and ended."""
    others = [other for other in range(world) if other != rank]
    begin = time.monotonic()
    store.set(f"{prefix}/{rank}", value_of(prefix, rank))
    keys = [f"{prefix}/{other}" for other in others]
    values = store.multi_get(keys) if at_once else [store.get(key) for key in keys]
    if store.add(f"{prefix}/count", 1) == world:
        store.set(f"{prefix}/all", "1")
    store.wait([f"{prefix}/all"])
    end = time.monotonic()
    assert values == [value_of(prefix, other) for other in others], f"wrong values in {prefix}"
    return begin, end


def main():
    repeats, out = int(sys.argv[1]), pathlib.Path(sys.argv[2])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    agent = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world, False, TIMEOUT)
    if rank == 0:
        peer = TCPStore("127.0.0.1", 0, world, True, TIMEOUT, wait_for_workers=False)
        agent.set("peer port", str(peer.port))
    else:
        peer = TCPStore("127.0.0.1", int(agent.get("peer port")), world, False, TIMEOUT)
    stores = {"ddprun": agent, "TCPStore": peer}
    seen = {f"{kind}, {name}": [] for kind in KINDS for name in stores}
    for repeat in range(repeats + 1):
        for turn, kind in enumerate(KINDS):
            # Who is first changes.
            for name in sorted(stores, reverse=(repeat + turn) % 2 == 1):
                what = f"{kind}, {name}"
                start_line(agent, f"line {repeat} {turn} {what}", world)
                times = exchange(stores[name], f"{repeat} {turn} {what}", rank, world, kind == "at once")
                if repeat > 0:  # the first one warms up
                    seen[what].append(times)
    agent.set(f"times/{rank}", json.dumps(seen))
    if rank == 0:
        out.write_text(json.dumps([json.loads(agent.get(f"times/{other}")) for other in range(world)]))
        agent.set("written", "1")
    agent.get("written")


if __name__ == "__main__":
    main()
