#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long after the kill -9 of a node's agent the other node has its verdict.

    tests/bench/killed_agent.py [--repeats 40] [--build build]

Two nodes at 127.0.0.1, TLS with derived certificates, workers that sleep; the agent of node 1 is killed, and node 0
has stopped its own worker, printed the cause and ended when the time stops.
"""

import argparse
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

CAUSE = "(node rank 1) was lost: its agent was killed by signal 9 (SIGKILL)"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def only_child(pid):
    (child,) = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def once(ddprun, env):
    """Seconds from the kill to the other node's end."""
    common = [ddprun, "--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={free_port()}"]
    nodes = [
        subprocess.Popen(
            [*common, f"--node-rank={rank}", "sh", "-c", "echo ready; exec sleep 100"],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for node in nodes:
        node.stdout.readline()
    agent = only_child(only_child(nodes[1].pid))  # warden, keeper, agent
    begin = time.monotonic()
    os.kill(agent, 9)
    nodes[0].wait(60)
    took = time.monotonic() - begin
    nodes[1].wait(60)
    said = nodes[0].stderr.read()
    if CAUSE not in said:
        raise SystemExit(f"node 0 did not name the cause: {said}")
    return took


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--build", default=str(pathlib.Path(__file__).resolve().parents[2] / "build"))
    arguments = parser.parse_args()
    env = dict(os.environ, DDPRUN_TOKEN=os.urandom(32).hex())
    ddprun = str(pathlib.Path(arguments.build) / "bin" / "ddprun")
    seen = [once(ddprun, env) for _ in range(arguments.repeats)]
    print(f"{statistics.median(seen) * 1000:.1f} ms ({min(seen) * 1000:.1f} to {max(seen) * 1000:.1f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
