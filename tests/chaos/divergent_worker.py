# SPDX-License-Identifier: Apache-2.0
"""For divergences.py: ranks that call the same collectives of Gloo, until one of them does not.

    divergent_worker.py SEED TIMEOUT_S

What happens follows from SEED and DDPRUN_ROUND alone; `plan()` says what the verdict is to name. It needs four ranks, so
that most of them are right.
"""

import datetime
import os
import random
import sys
import time

KINDS = ("asleep", "missing", "shape", "order", "group")
NAMES = ("all_reduce", "broadcast", "all_gather")


def plan(seed, round_number, world_size):
    """The kind, the guilty rank, and the collectives of all others: names and element counts, of which the last is the
    one that goes wrong. A collective that follows another differs from it, or a missing one would change nothing yet."""
    chance = random.Random(f"{seed} {round_number}")
    calls = []
    for _ in range(chance.randrange(3, 40)):
        name = chance.choice([one for one in NAMES if not calls or one != calls[-1][0]])
        calls.append((name, chance.randrange(1, 2000)))
    return chance.choice(KINDS), chance.randrange(world_size), calls


def call(name, size, group):
    import torch
    import torch.distributed as dist

    data = torch.ones(size)
    if name == "all_reduce":
        dist.all_reduce(data, group=group)
    elif name == "broadcast":
        dist.broadcast(data, 0, group=group)
    else:
        dist.all_gather([torch.empty(size) for _ in range(dist.get_world_size())], data, group=group)


def main():
    import torch.distributed as dist

    seed, timeout = int(sys.argv[1]), datetime.timedelta(seconds=float(sys.argv[2]))
    dist.init_process_group("gloo", timeout=timeout)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    kind, guilty, calls = plan(seed, int(os.environ["DDPRUN_ROUND"]), world_size)
    everyone = dist.new_group(timeout=timeout)
    name, size = calls[-1]
    following = NAMES[(NAMES.index(name) + 1) % len(NAMES)], size + 7
    for one in calls[:-1]:
        call(*one, None)
    if rank != guilty:
        call(name, size, None)
        call(*following, None)
    elif kind == "asleep":
        time.sleep(600)
    elif kind == "missing":
        call(*following, None)
    elif kind == "shape":
        call(name, size + 1, None)
    elif kind == "order":
        call(*following, None)
        call(name, size, None)
    else:
        call(name, size, everyone)
    time.sleep(600)  # others fail


if __name__ == "__main__":
    main()
