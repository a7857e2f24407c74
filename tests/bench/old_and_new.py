#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two builds of ddprun beside each other, in turn: what a change of the code's structure cost.

    tests/bench/old_and_new.py OLD NEW [--pairs 15] [--only start,restart,many,exchange,netresdeep,resnet18]

OLD and NEW are build folders of one version of torch, with the target start_many built. A pair is a run of each, right after each
other, and the next pair begins with the other one.

start       30 times `ddprun --standalone true`
restart     two nodes, from a worker's death to both workers anew (side_by_side.py)
many        10,000 simulated nodes join, learn their ranks and pass a barrier (start_many.py)
exchange    64 Python ranks of one node by torch's client of the agent's store (init_exchange.py)
netresdeep  images a second of two ranks with 64 images each, resnet18 with 16 (train_vs_python.py)

Prints how fast the new one is beside the old one: the median of the pairs' ratios, their quartiles, and both medians. Run it with
the Python that has the torch that both were built for, on a machine that does nothing else.
"""

import argparse
import os
import pathlib
import statistics
import sys
import tempfile
import types

import init_exchange
import side_by_side
import start_many
import train_vs_python

STARTS, NODES, EXCHANGES = 30, 10_000, 3
TRAINED = {"netresdeep": ("netresdeep", 64, 10, 60), "resnet18": ("resnet18", 16, 4, 20)}  # model, batch, first and last step


def take(build):
    """The other benchmarks use the programs of this build."""
    side_by_side.DDPRUN[:] = [str(build / "bin" / "ddprun")]
    start_many.SERVICE, start_many.AGENTS = build / "bin" / "ddprun-rendezvous", build / "tests" / "start_many"
    init_exchange.DDPRUN = str(build / "bin" / "ddprun")
    train_vs_python.BUILD = build


def trained(kind, folder):
    model, batch, first, last = TRAINED[kind]
    command = train_vs_python.ours(model, batch, last, first, folder, [])
    images = train_vs_python.RANKS * batch
    return 1 / train_vs_python.measure(command, first, last, r"^\[0\].* batch (\d+)/", images)[0]


def seconds_of(kind, folder):
    if kind == "start":
        return sum(side_by_side.once([*side_by_side.DDPRUN, "--standalone", "true"]) for _ in range(STARTS)) / STARTS
    if kind == "restart":
        return side_by_side.restart_once(side_by_side.DDPRUN)
    if kind == "many":
        plain = {name: value for name, value in os.environ.items() if name != "DDPRUN_TOKEN"}
        return start_many.start_of_ddprun(NODES, 64, ["--insecure"], plain)["total_s"]
    if kind == "exchange":
        times = init_exchange.times_of(1, "master", types.SimpleNamespace(repeats=EXCHANGES, ranks=64), folder)
        return statistics.median(times["at once, ddprun"]) / 1000
    return trained(kind, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("new", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--only", default="start,restart,many,exchange,netresdeep,resnet18")
    options = parser.parse_args()
    os.environ.setdefault("DDPRUN_TOKEN", os.urandom(32).hex())
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    sides = (options.old, options.new)
    for kind in options.only.split(","):
        seen = {side: [] for side in sides}
        for pair in range(-1, options.pairs):  # the first one warms the page cache
            for side in sides if pair % 2 else reversed(sides):
                take(side)
                with tempfile.TemporaryDirectory() as folder:
                    took = seconds_of(kind, pathlib.Path(folder))
                if pair >= 0:
                    seen[side].append(took)
            if pair >= 0:
                print(kind, pair + 1, *(f"{seen[side][-1]:.4g}" for side in sides), "s", file=sys.stderr, flush=True)
        ratios = [old / new for old, new in zip(seen[options.old], seen[options.new])]
        low, _, high = statistics.quantiles(ratios, n=4)
        old, new = (statistics.median(seen[side]) * 1000 for side in sides)
        print(f"{kind:10}  new / old {statistics.median(ratios):.3f}  quartiles {low:.3f} to {high:.3f}  old {old:.4g} new {new:.4g} ms", flush=True)
    print("load:", *(f"{load:.1f}" for load in os.getloadavg()))


if __name__ == "__main__":
    sys.exit(main())
