#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an init of 64 Python ranks exchanges, over the agent's listener and over a TCPStore in rank 0, in turn, in one run.

    tests/bench/init_exchange.py [--ranks 64] [--repeats 30] [--only NAME]

Each rank sets its key (64 bytes), gets the keys of all others and passes a barrier (add, set by the last, wait), with
torch.distributed.TCPStore as the client of both. "one by one": a get() for each key, "at once": one multi_get(). All
wait at a start line; the time is from the first one's start to the last one's end, the values are checked. On one node,
and on two nodes of this machine (two agents with half of the ranks each) with --worker-store master and agent.

Milliseconds, medians with the least and the most; the ratio is that of the medians. Run it with the Python that has
torch (deploy/setup.sh prints it).
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(os.environ.get("DDPRUN_BUILD_DIR", pathlib.Path(__file__).resolve().parents[2] / "build"))
DDPRUN = str(BUILD / "bin" / "ddprun")
PEER = pathlib.Path(__file__).with_name("init_exchange_peer.py")
DEADLINE_S = 900


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def commands_of(nodes, who, ranks):
    common = [DDPRUN, "--preload", "torch,torch.distributed", "--nproc-per-node", str(ranks // nodes), "--worker-store", who]
    if nodes == 1:
        return [[*common, "--standalone"]]
    at = ["--nnodes", str(nodes), "--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    return [[*common, *at, "--node-rank", str(rank)] for rank in range(nodes)]


def times_of(nodes, who, arguments, folder):
    """By what was done: milliseconds of each exchange."""
    out = folder / "times.json"
    words = [str(PEER), str(arguments.repeats), str(out)]
    processes = [subprocess.Popen([*command, *words]) for command in commands_of(nodes, who, arguments.ranks)]
    try:
        codes = [process.wait(DEADLINE_S) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.terminate()
    if any(codes):
        sys.exit(f"the nodes ended with {codes}")
    ranks = json.loads(out.read_text())

    def all_took(times):
        return 1000 * (max(end for _, end in times) - min(begin for begin, _ in times))

    return {what: [all_took(times) for times in zip(*(rank[what] for rank in ranks))] for what in ranks[0]}


def show(label, times):
    for kind in ("one by one", "at once"):
        medians = {}
        for name in ("ddprun", "TCPStore"):
            seen = times[f"{kind}, {name}"]
            medians[name] = statistics.median(seen)
            low, _, high = statistics.quantiles(seen, n=4)
            print(
                f"{label}, {kind}, {name}: {medians[name]:.1f} ms ({min(seen):.1f} to {max(seen):.1f};"
                f" quartiles {low:.1f} and {high:.1f})"
            )
        print(f"  ddprun / TCPStore: {medians['ddprun'] / medians['TCPStore']:.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--only", default="", help="a part of the name of what to run")
    arguments = parser.parse_args()
    os.environ.setdefault("DDPRUN_TOKEN", os.urandom(32).hex())
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    kinds = {"one node": (1, "master"), "two nodes": (2, "master"), "two nodes, each agent serves": (2, "agent")}
    for label, (nodes, who) in kinds.items():
        if arguments.only in label:
            with tempfile.TemporaryDirectory() as folder:
                show(label, times_of(nodes, who, arguments, pathlib.Path(folder)))
    print("load:", *(f"{load:.1f}" for load in os.getloadavg()))


if __name__ == "__main__":
    main()
