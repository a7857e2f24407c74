#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ddprun beside torchrun on one machine, in turn: start, memory, a restart of both nodes, an idle agent.

    tests/bench/side_by_side.py [--repeats 20] [--torchrun-repeats 5] [--idle-seconds 20] [--only start,memory,...]

start    `true` from the command's start to its end; beside it the same program by posix_spawn alone.
memory   peak resident set of the agent (VmHWM) while a worker of one node runs, of two nodes' first and second agent
restart  two nodes on 127.0.0.1, a worker each; node 1's kills itself (SIGKILL), from its last act to the first act of both
         workers of the next round
idle     processor time of all of the launcher's processes while two nodes' workers sleep, as a share of one core

Medians with the least and the most seen. Run it with the Python that has torch (deploy/setup.sh prints it).
"""

import argparse
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

BUILD = pathlib.Path(os.environ.get("DDPRUN_BUILD_DIR", pathlib.Path(__file__).resolve().parents[2] / "build"))
DDPRUN = [str(BUILD / "bin" / "ddprun")]
COPIED = [*DDPRUN, "--standby-nodes=1", "--rdzv-id=bench"]  # each decision waits for the other node's copy
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
DEADLINE_S = 120

# Writes when it begins; rank 1 of the first round kills itself once all have begun. Which round it is cannot be taken
# from the restart count: torchrun's agents count apart.
RESTARTED = """
import os, sys, time
folder, rank = sys.argv[1], os.environ["RANK"]
count = "1" if os.path.exists(f"{folder}/died") else "0"
def write(name):
    with open(f"{folder}/.{name}.{os.getpid()}", "w") as file:
        file.write(str(time.monotonic_ns()))
    os.rename(file.name, f"{folder}/{name}")
write(f"begun.{count}.{rank}")
if count == "0":
    while not all(os.path.exists(f"{folder}/begun.0.{r}") for r in "01"):
        time.sleep(0.01)
    if rank == "1":
        write("died")
        os.kill(os.getpid(), 9)
    time.sleep(100)
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def summary(values, factor=1.0, digits=1):
    scaled = [value * factor for value in values]
    return f"{statistics.median(scaled):.{digits}f} ({min(scaled):.{digits}f} to {max(scaled):.{digits}f})"


def node_commands(launcher, port, *more):
    """Of two nodes on this machine, whose ranks are those of their nodes."""
    if launcher is DDPRUN:
        return [
            [*DDPRUN, "--nnodes=2", f"--node-rank={rank}", "--master-addr=127.0.0.1", f"--master-port={port}", *more]
            for rank in range(2)
        ]
    if launcher is COPIED:
        endpoint = f"--rdzv-endpoint=127.0.0.1:{port},127.0.0.1:{free_port()}"
        return [[*COPIED, "--nnodes=2", endpoint, *more] for _ in range(2)]
    return [
        [*TORCHRUN, "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=bench", *more]
        for _ in range(2)
    ]


def once(command):
    begin = time.monotonic()
    process = os.posix_spawnp(command[0], command, os.environ)
    _, status = os.waitpid(process, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    return time.monotonic() - begin


def measure_start(arguments):
    seen = {"posix_spawn": [], "ddprun": [], "torchrun": []}
    for repeat in range(arguments.repeats + 1):
        results = {"posix_spawn": once(["true"]), "ddprun": once([*DDPRUN, "--standalone", "true"])}
        if repeat <= arguments.torchrun_repeats:
            results["torchrun"] = once([*TORCHRUN, "--no-python", "true"])
        for name, value in results.items():
            if repeat > 0:  # the first ones warm the page cache
                seen[name].append(value)
    for name, values in seen.items():
        print(f"start of true, {name}: {summary(values, 1000)} ms")
    median = {name: statistics.median(values) for name, values in seen.items()}
    print(f"  ddprun - posix_spawn: {(median['ddprun'] - median['posix_spawn']) * 1000:.1f} ms")
    print(f"  torchrun / ddprun: {median['torchrun'] / median['ddprun']:.0f}")


def descendants(pid):
    children = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        children += [int(child) for child in (task / "children").read_text().split()]
    return [pid] + [one for child in children for one in descendants(child)]


def launchers_of(pid, worker):
    """The processes of a tree that are not `worker`'s, with their peak memory in MB and processor time in s."""
    found = []
    for one in descendants(pid):
        if pathlib.Path(f"/proc/{one}/comm").read_text().strip() == worker:
            continue
        status = pathlib.Path(f"/proc/{one}/status").read_text()
        peak = int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6
        fields = pathlib.Path(f"/proc/{one}/stat").read_text().rsplit(")", 1)[1].split()
        found.append((peak, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")))
    return found


def wait_for(what, is_so):
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        if time.monotonic() > deadline:
            sys.exit(f"{what} has not come within {DEADLINE_S} s")
        time.sleep(0.02)


class Nodes:
    """Launchers that run until they are told to end."""

    def __init__(self, commands):
        self.processes = [
            subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for command in commands
        ]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def wait_for_workers(self, worker):
        def all_have():
            return all(
                any(pathlib.Path(f"/proc/{one}/comm").read_text().strip() == worker for one in descendants(process.pid))
                for process in self.processes
            )

        def guarded():
            try:
                return all_have()
            except FileNotFoundError:  # one ended while it was looked at
                return False

        wait_for(f"a {worker} on every node", guarded)


def measure_memory_and_idle(arguments, wanted):
    for launcher, name in ((DDPRUN, "ddprun"), (TORCHRUN, "torchrun")):
        program = ["--no-python", "sleep", "1000"]
        commands = node_commands(launcher, free_port(), *program)
        with Nodes(commands) as nodes:
            nodes.wait_for_workers("sleep")
            before = [launchers_of(process.pid, "sleep") for process in nodes.processes]
            if "memory" in wanted:
                peaks = [", ".join(f"{peak:.1f}" for peak, _ in found) for found in before]
                print(f"peak memory of each process, {name}: first node {peaks[0]} MB, second {peaks[1]} MB")
            if "idle" not in wanted:
                continue
            time.sleep(arguments.idle_seconds)  # what is measured, not waited for
            after = [launchers_of(process.pid, "sleep") for process in nodes.processes]
        for node in range(2):
            used = sum(cpu for _, cpu in after[node]) - sum(cpu for _, cpu in before[node])
            print(f"idle, {name}, node {node}: {used / arguments.idle_seconds * 100:.2f} % of a core")
    if "memory" in wanted:
        with Nodes([[*DDPRUN, "--standalone", "sleep", "1000"]]) as nodes:
            nodes.wait_for_workers("sleep")
            peaks = ", ".join(f"{peak:.1f}" for peak, _ in launchers_of(nodes.processes[0].pid, "sleep"))
            print(f"peak memory of each process, ddprun, one node: {peaks} MB")


def restart_once(launcher):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        more = ["--max-restarts=1", "--no-python", sys.executable, "-S", "-c", RESTARTED, str(folder)]
        begun = [folder / "begun.1.0", folder / "begun.1.1"]
        with Nodes(node_commands(launcher, free_port(), *more)):
            wait_for("the restart", lambda: all(path.exists() for path in begun))
        return (max(int(path.read_text()) for path in begun) - int((folder / "died").read_text())) / 1e9


def measure_restart(arguments):
    seen = {"ddprun": [], "ddprun with --standby-nodes 1": [], "torchrun": []}
    for repeat in range(arguments.repeats):
        seen["ddprun"].append(restart_once(DDPRUN))
        seen["ddprun with --standby-nodes 1"].append(restart_once(COPIED))
        if repeat < arguments.torchrun_repeats:
            seen["torchrun"].append(restart_once(TORCHRUN))
    for name, values in ((name, values) for name, values in seen.items() if values):
        print(f"a worker's death to both nodes' workers anew, {name}: {summary(values, 1000)} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--torchrun-repeats", type=int, default=5)
    parser.add_argument("--idle-seconds", type=float, default=20)
    parser.add_argument("--only", default="start,memory,restart,idle")
    arguments = parser.parse_args()
    os.environ.setdefault("DDPRUN_TOKEN", os.urandom(32).hex())
    wanted = arguments.only.split(",")
    if "start" in wanted:
        measure_start(arguments)
    if "memory" in wanted or "idle" in wanted:
        measure_memory_and_idle(arguments, wanted)
    if "restart" in wanted:
        measure_restart(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
