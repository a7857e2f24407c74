#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two Python ranks until their first optimizer step, after an all-reduce over Gloo: ddprun, ddprun --preload torch, and torchrun, in turn, in one run.

    tests/bench/warm_start.py [--repeats 7] [--json FILE]

start: from the command until both ranks have made the step. warm: the same from the end of the fork server's
imports. restart: from the kill -9 of rank 1 until the ranks of the next round have made it. Seconds: the median with the
least and the most seen. Run it with the Python that has torch (deploy/setup.sh prints it).
"""

import argparse
import json
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
PATIENCE = 120  # seconds; a wait that is not over by then fails
LOOK = 0.002
RANKS = 2
DDPRUN = [str(BUILD / "bin" / "ddprun"), "--standalone"]
COMMANDS = {
    "ddprun": DDPRUN,
    "ddprun --preload torch": [*DDPRUN, "--preload", "torch,preloaded"],
    "torchrun": [
        sys.executable, "-m", "torch.distributed.run", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:PORT",
        "--local-addr=127.0.0.1",
    ],
}
# Imported last by the fork server: when it is ready.
PRELOADED = "import pathlib, time, torch._dynamo\n(pathlib.Path(__file__).parent / 'ready').write_text(str(time.monotonic()))\n"
PROGRAM = """
import os, pathlib, signal, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
weight = torch.ones(1, requires_grad=True)
weight.grad = torch.ones(1)
dist.all_reduce(weight.grad)
torch.optim.SGD([weight], lr=0.1).step()
now = time.monotonic()
restarts, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]
part = pathlib.Path(__file__).parent / f"{restarts}.{rank}.part"
part.write_text(f"{now} {os.getpid()}")
part.rename(part.with_suffix(".done"))
if restarts == "0":
    signal.pause()
dist.destroy_process_group()
"""


def wait_for_ranks(folder, restarts, process):
    """[(time, pid)] of the ranks, once all have made the step."""
    end = time.monotonic() + PATIENCE
    paths = [folder / f"{restarts}.{rank}.done" for rank in range(RANKS)]
    while not all(path.exists() for path in paths):
        if time.monotonic() > end or process.poll() is not None:
            process.terminate()
            sys.exit(f"{process.args} makes no step: {process.communicate(timeout=PATIENCE)[1]}")
        time.sleep(LOOK)
    return [(float(when), int(pid)) for when, pid in (path.read_text().split() for path in paths)]


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def measure(command):
    """{what: seconds} of one run."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        program = folder / "program.py"
        program.write_text(PROGRAM)
        (folder / "preloaded.py").write_text(PRELOADED)
        words = [word.replace("PORT", free_port()) for word in command]
        command = [*words, f"--nproc-per-node={RANKS}", "--max-restarts=1", str(program)]
        begin = time.monotonic()
        environment = {**os.environ, "PYTHON_EXEC": sys.executable}
        if command[0] == sys.executable:
            # In torchrun's shared store the ranks of a restart find the addresses of the dead ones, and do not meet.
            environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        first = wait_for_ranks(folder, 0, process)
        seen = {"start": max(when for when, _ in first) - begin}
        if (folder / "ready").exists():
            seen["warm"] = max(when for when, _ in first) - float((folder / "ready").read_text())
        killed = time.monotonic()
        os.kill(first[1][1], signal.SIGKILL)
        seen["restart"] = max(when for when, _ in wait_for_ranks(folder, 1, process)) - killed
        _, errors = process.communicate(timeout=PATIENCE)
        if process.returncode != 0:
            sys.exit(f"{command} ended with {process.returncode}: {errors}")
        return seen


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()

    seen = {name: {} for name in COMMANDS}
    for repeat in range(arguments.repeats + 1):
        for name, command in COMMANDS.items():
            for what, seconds in measure(command).items():
                if repeat > 0:  # the first of each warms the page cache
                    seen[name].setdefault(what, []).append(seconds)
    report = {"repeats": arguments.repeats}
    for name, figures in seen.items():
        report[name] = {
            what: {"median": statistics.median(values), "min": min(values), "max": max(values)}
            for what, values in figures.items()
        }
        columns = [f"{what} {f['median']:.3f} ({f['min']:.3f} to {f['max']:.3f})" for what, f in report[name].items()]
        print(f"{name:24}", ", ".join(columns))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
