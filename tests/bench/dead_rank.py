#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that are killed while two nodes of two ranks train: how soon all ranks have made their next step.

    tests/bench/dead_rank.py [--kills 200] [--spares 1] [--peer torchft] [--peer-kills 5] [--python [PROGRAM]] [--seed 1]
        [--build build] [--json FILE]

The nodes are two agents on this machine, which train NetResDeep on synthetic images with Gloo. A random rank gets
SIGKILL; the time is taken from there until every rank has done the step that was in flight. Beside it torchrun with the same
network and batch in Python, whose workers are all started anew, or torchft with replicas of one rank and the network of --python. What
the workers write (samples-RANK.jsonl, and the same of the peer) is looked at every two milliseconds.

--python: ranks of tests/e2e/kept_training.py instead, which is Python and uses ddprun.rounds(); --python trainer, accelerate or lightning:
two ranks of kept_trainer.py and the like. They train to a last step, and network and optimizer must have the bits of a run in which
nobody was killed.
"""

import argparse
import json
import os
import pathlib
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PATIENCE = 120  # seconds; a wait that is not over by then fails
LOOK = 0.002
NODES = 2
RANKS = 4
STEP = re.compile(rb'"step": (\d+)')
PID = re.compile(rb'"pid": (\d+)')


def peer(folder):
    """A worker of torchrun: the same network, without a data loader."""
    sys.path.insert(0, str(HERE.parent / "e2e"))
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from python_models import make_model
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    saved = pathlib.Path(folder, "state.pt")
    model = DistributedDataParallel(make_model("netresdeep"), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    step = 0
    if saved.exists():
        state = torch.load(saved)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    images, labels = torch.randn(8, 3, 32, 32), torch.randint(10, (8,))
    with open(pathlib.Path(folder, f"samples-{rank}.jsonl"), "a", encoding="utf-8") as log:
        while True:
            log.write(f'{{"step": {step + 1}, "pid": {os.getpid()}}}\n')
            log.flush()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if rank == 0 and step % 10 == 0:
                torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, f"{saved}.new")
                os.replace(f"{saved}.new", saved)


def torchft_peer(folder, rank, lighthouse):
    """A replica of torchft, of one rank: the network of tests/e2e/kept_training.py."""
    import datetime

    import torch
    import torch.nn.functional as F
    import torchft
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.GroupNorm(2, 16), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(784, 10))
    plain = torch.optim.AdamW(net.parameters(), lr=0.001)

    def load(state):
        net.load_state_dict(state["net"])
        plain.load_state_dict(state["optimizer"])

    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    limit = datetime.timedelta(seconds=5)
    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=limit), min_replica_size=1, load_state_dict=load,
        state_dict=lambda: {"net": net.state_dict(), "optimizer": plain.state_dict()}, replica_id=f"replica_{rank}", rank=0, world_size=1,
        store_addr="127.0.0.1", store_port=store.port, lighthouse_addr=lighthouse, hostname="127.0.0.1", timeout=limit,
    )  # fmt: skip
    ddp, optimizer = torchft.DistributedDataParallel(manager, net), torchft.Optimizer(manager, plain)
    with open(pathlib.Path(folder, f"samples-{rank}.jsonl"), "a", encoding="utf-8") as log:
        while True:
            optimizer.zero_grad()
            loss = F.cross_entropy(ddp(torch.randn(8, 3, 32, 32)), torch.randint(10, (8,)))
            loss.backward()
            optimizer.step()
            log.write(f'{{"step": {manager.current_step() + 1}, "pid": {os.getpid()}}}\n')
            log.flush()


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def last_number(path, pattern=STEP):
    """Of the last line that is whole; 0 without one."""
    try:
        with open(path, "rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - 8192))
            lines = log.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return 0
    found = pattern.search(lines[-1]) if lines else None
    return int(found[1]) if found else 0


def writers(folder):
    """The process of each rank: the one that has its log open for writing."""
    pids = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            for fd in (process / "fd").iterdir():
                target = os.readlink(fd)
                if target.startswith(f"{folder}/samples-") and target.endswith(".jsonl"):
                    pids[int(target.rsplit("-", 1)[1][:-6])] = int(process.name)
        except OSError:
            continue
    return pids


class Stuck(Exception):
    """The ranks do not go on."""


class Run:
    def __init__(self, commands, folder, env, ranks):
        self.folder = folder
        self.ranks = ranks
        self.logs = [open(pathlib.Path(folder, f"node-{i}.log"), "wb") for i in range(len(commands))]
        self.nodes = [
            subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
            for command, log in zip(commands, self.logs)
        ]

    def steps(self):
        return [last_number(f"{self.folder}/samples-{rank}.jsonl") for rank in range(self.ranks)]

    def wait(self, condition):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline or any(node.poll() is not None for node in self.nodes):
                raise Stuck(pathlib.Path(self.logs[0].name).read_text(errors="replace")[-1000:])
            time.sleep(LOOK)

    def kill_one(self, rng):
        """Seconds until every rank has done the step that was in flight."""
        victim = rng.randrange(self.ranks)
        pid = last_number(f"{self.folder}/samples-{victim}.jsonl", PID)
        while not pid:  # train's lines have none
            time.sleep(0.01)
            pid = writers(self.folder).get(victim)
        os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        in_flight = max(self.steps())
        self.wait(lambda: min(self.steps()) > in_flight)
        return time.monotonic() - killed

    def finish(self):
        """Exit codes, after the last step."""
        return [node.wait(10 * PATIENCE) for node in self.nodes]

    def end(self):
        for node in self.nodes:
            node.send_signal(signal.SIGTERM)
        for node in self.nodes:
            try:
                node.wait(60)
            except subprocess.TimeoutExpired:
                node.kill()
        for log in self.logs:
            log.close()


def environment():
    """Of a launcher whose programs in Python are run by this Python."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]}


def begin(commands, folder, ranks):
    env = {**environment(), "XDG_RUNTIME_DIR": folder}
    return Run([[word.replace("FOLDER", folder) for word in command] for command in commands], folder, env, ranks)


def measure(commands, ranks, kills, rng, settle, at_end=lambda run: {}):
    """Seconds for each kill; `settle`: steps that are made between two."""
    with tempfile.TemporaryDirectory(prefix="dead-rank-") as folder:
        run = begin(commands, folder, ranks)
        times = []
        stuck = None
        try:
            run.wait(lambda: min(run.steps()) > settle)
            for _ in range(kills):
                times.append(run.kill_one(rng))
                print(f"kill {len(times)}: {times[-1]:.3f} s", file=sys.stderr)
                goal = max(run.steps()) + settle + rng.randrange(10)
                run.wait(lambda goal=goal: min(run.steps()) > goal)
            more = at_end(run)
        except Stuck as error:
            stuck, more = str(error), {}
        finally:
            run.end()
        return {**describe(times, stuck), **more}


def bits_beside(commands):
    """For the end of `measure`: whether the run ends as one of the same commands in which nobody is killed."""

    sys.path.insert(0, str(HERE.parent / "e2e"))
    from kept_training import state_of

    def compare(run):
        ended = run.finish()
        with tempfile.TemporaryDirectory(prefix="dead-rank-") as folder:
            plain = begin(commands, folder, run.ranks)
            try:
                plain_ended = plain.finish()
                same = state_of(folder) == state_of(run.folder)
            finally:
                plain.end()
        return {"exit codes": ended + plain_ended, "same bits": same}

    return compare


def ddprun(build, ranks, spares, program):
    port = free_port()
    return [
        [f"{build}/bin/ddprun", "--nnodes", "2", "--node-rank", str(node), "--nproc-per-node", str(ranks // NODES), "--insecure",
         "--master-addr", "127.0.0.1", "--master-port", str(port), "--max-restarts", "1000000", "--spares", str(spares), *program]
        for node in range(NODES)
    ]  # fmt: skip


TRAIN = ["train", "--dataset", "synthetic", "--samples", "8000", "--epochs", "100000", "--batch-size", "8", "--device", "cpu",
         "--no-metrics", "--no-eval", "--log-samples", "--output-dir", "FOLDER"]  # fmt: skip


# The modules to preload, the number of ranks, and the steps of what the program counts.
PYTHON = {
    "training": ("torch", RANKS, 1),
    "trainer": ("torch,transformers", 2, 20),
    "accelerate": ("torch,accelerate", 2, 20),
    "lightning": ("torch,pytorch_lightning", 2, 20),
}


def python_ranks(name, steps):
    preload, _, unit = PYTHON[name]
    return ["--preload", preload, str(HERE.parent / "e2e" / f"kept_{name}.py"), "FOLDER", str(-(-steps // unit))]


def torchrun():
    port = free_port()
    return [
        [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(node), "--nproc-per-node", "2",
         "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "r", "--local-addr", "127.0.0.1",
         "--max-restarts", "1000", __file__, "--worker", "FOLDER"]
        for node in range(NODES)
    ]  # fmt: skip


def torchft():
    """A lighthouse, and replicas of one rank each, which a shell starts again."""
    lighthouse = f"127.0.0.1:{free_port()}"
    server = (
        "import time, torchft.coordination as c; "
        f"s = c.LighthouseServer(bind='{lighthouse}', min_replicas=1, join_timeout_ms=100, quorum_tick_ms=20, heartbeat_timeout_ms=1000); "
        "time.sleep(1e6)"
    )
    again = """trap 'kill $!; exit 1' TERM; while :; do "$@" & wait $!; done"""
    worker = [sys.executable, __file__, "--worker", "FOLDER", "--lighthouse", f"http://{lighthouse}", "--rank"]
    return [[sys.executable, "-c", server]] + [["bash", "-c", again, "replica", *worker, str(rank)] for rank in range(RANKS)]


PEERS = {"torchrun": torchrun, "torchft": torchft}


def describe(times, stuck):
    ordered = sorted(times)
    if not ordered:
        return {"kills": 0, "then stuck": stuck}
    figures = {
        "kills": len(ordered),
        "p50": round(statistics.median(ordered), 3),
        "p90": round(ordered[int(0.9 * (len(ordered) - 1))], 3),
        "p99": round(ordered[int(0.99 * (len(ordered) - 1))], 3),
        "least": round(ordered[0], 3),
        "most": round(ordered[-1], 3),
    }
    return {**figures, "then stuck": stuck} if stuck else figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--spares", type=int, default=1)
    parser.add_argument("--peer", choices=PEERS, default="torchrun", help="torchft: of the Python that runs this")
    parser.add_argument("--peer-kills", type=int, default=5)
    parser.add_argument("--settle", type=int, default=30, help="steps between two kills")
    parser.add_argument("--python", nargs="?", choices=PYTHON, const="training", help="ranks in Python, of tests/e2e/kept_PROGRAM.py")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--build", default=str(HERE.parents[1] / "build"))
    parser.add_argument("--json")
    for name in ("--worker", "--lighthouse", "--rank"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return torchft_peer(options.worker, options.rank, options.lighthouse) if options.lighthouse else peer(options.worker)
    rng = random.Random(options.seed)
    name = f"ddprun, {options.spares} spares"
    report = {}
    if options.python:
        # Before each kill and after the last one, and while ranks are found and counted.
        ranks, steps = PYTHON[options.python][1], (options.kills + 1) * (options.settle + 30)
        commands = ddprun(options.build, ranks, options.spares, python_ranks(options.python, steps))
        runs = [(f"{name}, Python ({options.python})", commands, ranks, options.kills, bits_beside(commands))]
    else:
        runs = [(name, ddprun(options.build, RANKS, options.spares, TRAIN), RANKS, options.kills)]
    if options.peer_kills:
        runs.append((options.peer, PEERS[options.peer](), RANKS, options.peer_kills))
    for name, commands, ranks, kills, *at_end in runs:
        report[name] = measure(commands, ranks, kills, rng, options.settle, *at_end)
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in report[name].items()) + " (seconds)", flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
