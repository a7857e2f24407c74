#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Injects failures into runs of two and three nodes, and counts how often the verdict names the one that came first.

    tests/chaos/first_cause.py [--injections 300] [--torch-share 0.1] [--seed 1] [--build build]

Most are one failure a round of a run with as many restarts: each node's note of the restart must name the rank that
failed first and how, and the last verdict must be the same on every node. Kinds: exit codes, SIGSEGV, SIGABRT, SIGKILL,
exceptions with a failure record and without, before the ranks have met and while they talk, a second rank of the node
that fails within milliseconds of the first one's death, all workers of a node at once. Besides, runs of their own: an agent that is killed, and a worker that
the kernel kills for want of memory. Two nodes have network namespaces of their own where that is possible.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

WORKER = str(HERE / "chaos_worker.py")
WORKERS_PER_NODE = 2
ROUND_TIMEOUT_S = 60
CGROUPS = pathlib.Path("/sys/fs/cgroup")
MEMORY_LIMIT = 128 << 20


# ---- What is to happen


def plan_of(count, nodes, chance):
    world_size = nodes * WORKERS_PER_NODE
    plan = []
    for _ in range(count):
        kind = chance.choice(["exit", "signal", "signal", "exception", "recorded", "second", "node"])
        rank = chance.randrange(world_size)
        first_of_node = rank - rank % WORKERS_PER_NODE
        of_node = list(range(first_of_node, first_of_node + WORKERS_PER_NODE))
        entry = {"kind": kind, "ranks": [rank], "step": chance.choice([0, 1, 2, 20, 200])}
        entry["signal"] = chance.choice(["SIGSEGV", "SIGABRT", "SIGKILL"])
        entry["code"] = chance.choice([1, 3, 77, 255])
        if kind == "node":
            entry["ranks"] = of_node
        if kind == "second":
            entry["ranks"] = [rank, next(other for other in of_node if other != rank)]
            entry["apart_s"] = chance.choice([0, 0.001, 0.004])
            entry["step"] = max(1, entry["step"])
        plan.append(entry)
    return plan


def words_of(entry):
    """How the cause ends, in the verdict's words."""
    if entry["kind"] == "exit":
        return f"exited with code {entry['code']}"
    if entry["kind"] in ("exception", "recorded"):
        return "exited with code 1"
    if entry["kind"] == "memory":
        return "was killed by the kernel's out-of-memory killer"
    return f"was killed by {entry['signal']}"


def right_ranks(entry, truth, restart):
    """Who may be named: who failed first; where all workers of a node did at once, any that came so far."""
    failed = {int(file.name.split(".")[1]) for file in truth.glob(f"{restart}.*")}
    return failed if entry["kind"] == "node" else failed & {entry["ranks"][0]}


# ---- Where it happens


@contextlib.contextmanager
def places_of(nodes):
    """(prefix of a command, address of node 0) for each node."""
    if nodes != 2 or os.geteuid() != 0:
        yield [[] for _ in range(nodes)], "127.0.0.1"
        return
    from hosts import joined_hosts

    with joined_hosts() as hosts:
        yield [host.prefix for host in hosts], hosts[0].address


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start_nodes(options, folder, plan, *, nodes, prefixes, address, restarts, torch=False):
    (folder / "plan.json").write_text(json.dumps(plan))
    (folder / "truth").mkdir()
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "TORCHELASTIC_", "DDPRUN_"))}
    env.update(DDPRUN_TOKEN=options.token, CHAOS_PLAN=str(folder / "plan.json"), CHAOS_TRUTH=str(folder / "truth"))
    env.update(CHAOS_TORCH="1" if torch else "", OMP_NUM_THREADS="1", PYTHON_EXEC=sys.executable, PYTHONDONTWRITEBYTECODE="1")
    # Gloo would take the interface of the host's name, which the namespaces share.
    env["GLOO_SOCKET_IFNAME"] = "eth0" if address != "127.0.0.1" else "lo"
    port = free_port()
    started = []
    for rank in range(nodes):
        command = [*prefixes[rank], options.ddprun, f"--nnodes={nodes}", f"--node-rank={rank}", f"--master-addr={address}"]
        command += [f"--master-port={port}", f"--nproc-per-node={WORKERS_PER_NODE}", f"--max-restarts={restarts}"]
        command += [f"--verdict-file={folder}/verdict.{rank}", WORKER]
        errors = (folder / f"stderr.{rank}").open("w")
        started.append(subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors))
        errors.close()
    return started


def wait_for_all(processes, timeout):
    try:
        return [process.wait(timeout) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()


# ---- What was said of it


class Score:
    def __init__(self):
        self.right = collections.Counter()
        self.wrong = []

    def note(self, kind, wrong_words):
        if wrong_words:
            self.wrong.append(f"{kind}: {wrong_words}")
            print(f"WRONG {self.wrong[-1]}", flush=True)
        else:
            self.right[kind] += 1

    def total(self):
        return sum(self.right.values()) + len(self.wrong)


def judge_sentence(sentence, entry, ranks):
    named = re.search(r"\brank (\d+) \(", sentence)
    if named is None or int(named.group(1)) not in ranks:
        return f"not one of ranks {sorted(ranks)}: {sentence}"
    if words_of(entry) not in sentence:
        return f"not '{words_of(entry)}': {sentence}"
    return ""


def read_verdicts(folder, nodes):
    verdicts = [json.loads((folder / f"verdict.{rank}").read_text()) for rank in range(nodes)]
    return verdicts, {json.dumps({**verdict, "reported_by": None}) for verdict in verdicts}


def run_rounds(options, score, plan, nodes, torch):
    label = "gloo" if torch else "ring"
    with tempfile.TemporaryDirectory(prefix="first-cause-") as name, places_of(nodes) as (prefixes, address):
        folder = pathlib.Path(name)
        processes = start_nodes(
            options, folder, plan, nodes=nodes, prefixes=prefixes, address=address, restarts=len(plan) - 1, torch=torch
        )
        codes = wait_for_all(processes, ROUND_TIMEOUT_S * len(plan))
        said = [(folder / f"stderr.{rank}").read_text() for rank in range(nodes)]
        verdicts, distinct = read_verdicts(folder, nodes)
        for restart, entry in enumerate(plan):
            ranks = right_ranks(entry, folder / "truth", restart)
            last = restart == len(plan) - 1
            if last:
                sentences = [verdict["cause"]["sentence"] for verdict in verdicts]
            else:
                sentences = [
                    "".join(re.findall(rf"^ddprun: restart {restart + 1} of \d+ as round \d+: (.*)$", text, re.M)) for text in said
                ]
            words = "" if len(set(sentences)) == 1 else f"nodes differ: {sentences}"
            words = words or judge_sentence(sentences[0], entry, ranks)
            if last and not words and (len(distinct) != 1 or set(codes) != {verdicts[0]["exit_code"]}):
                words = f"verdicts or exit codes differ: {distinct} {codes}"
            score.note(f"{label} {entry['kind']}", words and f"{nodes} nodes, {entry}: {words}")
            if words and options.keep:
                shutil.copytree(folder, pathlib.Path(options.keep) / f"{label}-{score.total()}")


def run_killed_agent(options, score, nodes, chance):
    """The agent, and with it the node's workers: the others' collectives break at once."""
    with tempfile.TemporaryDirectory(prefix="first-cause-") as name, places_of(nodes) as (prefixes, address):
        folder = pathlib.Path(name)
        plan = [{"kind": "exit", "ranks": [], "step": -1}]
        processes = start_nodes(options, folder, plan, nodes=nodes, prefixes=prefixes, address=address, restarts=0)
        victim = chance.randrange(1, nodes)  # node 0 hosts the service
        agent = wait_until_running(processes[victim].pid)
        os.kill(agent, 9)
        wait_for_all(processes, ROUND_TIMEOUT_S)
        sentence = json.loads((folder / "verdict.0").read_text())["cause"]["sentence"]
        right = f"(node rank {victim}) was lost: its agent was killed by signal 9 (SIGKILL)" in sentence
        score.note("agent killed", "" if right else sentence)


def children_of(pid):
    """Of all its threads: the agent starts workers on one of its own."""
    tasks = pathlib.Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for children in tasks for word in children.read_text().split()]


def wait_until_running(pid):
    """Until the workers below this process (a ddprun, or what has started one) are in their ring; the agent's pid."""
    import time

    deadline = time.monotonic() + ROUND_TIMEOUT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            agent = pid
            while len(workers := children_of(agent)) == 1:  # the agent's guards
                agent = workers[0]
            if len(workers) == WORKERS_PER_NODE:
                # Beside the standard three: two connections of the ring, its listener, and one to rank 0.
                if all(len(os.listdir(f"/proc/{worker}/fd")) >= 7 for worker in workers):
                    return agent
        time.sleep(0.01)
    raise TimeoutError("the workers have not met")


class MemoryCgroup:
    """A cgroup with little memory; None where there cannot be one."""

    def __init__(self):
        self.folder = None
        for top, limit in ((CGROUPS / "memory", "memory.limit_in_bytes"), (CGROUPS, "memory.max"), (CGROUPS / "unified", "memory.max")):
            folder = top / f"ddprun-first-cause-{os.getpid()}"
            try:
                folder.mkdir()
                (folder / limit).write_text(str(MEMORY_LIMIT))
            except OSError:
                with contextlib.suppress(OSError):
                    folder.rmdir()
                continue
            self.folder = folder
            return

    def prefix(self):
        return ["sh", "-c", f'echo $$ > {self.folder}/cgroup.procs; exec "$@"', "sh"]

    def close(self):
        if self.folder is not None:
            self.folder.rmdir()


def run_out_of_memory(options, score, chance):
    cgroup = MemoryCgroup()
    if cgroup.folder is None:
        print("no memory cgroup can be made here: kills by the kernel are left out", flush=True)
        return
    try:
        with tempfile.TemporaryDirectory(prefix="first-cause-") as name:
            folder = pathlib.Path(name)
            rank = WORKERS_PER_NODE + chance.randrange(WORKERS_PER_NODE)
            plan = [{"kind": "memory", "ranks": [rank], "step": chance.choice([0, 20])}]
            processes = start_nodes(
                options, folder, plan, nodes=2, prefixes=[[], cgroup.prefix()], address="127.0.0.1", restarts=0
            )
            codes = wait_for_all(processes, ROUND_TIMEOUT_S)
            verdicts, distinct = read_verdicts(folder, 2)
            cause = verdicts[0]["cause"]
            words = judge_sentence(cause["sentence"], plan[0], {rank})
            if not words and (cause["oom"] or {}).get("limit_bytes") != MEMORY_LIMIT:
                words = f"not the cgroup's limit: {cause['oom']}"
            if not words and (len(distinct) != 1 or codes != [137, 137]):
                words = f"verdicts or exit codes differ: {distinct} {codes}"
            score.note("out of memory", words)
    finally:
        cgroup.close()


# ---- The same for torchrun, which says something at its end only, each node for itself


def run_under_torchrun(options, seen, entry):
    with tempfile.TemporaryDirectory(prefix="first-cause-") as name:
        folder = pathlib.Path(name)
        (folder / "plan.json").write_text(json.dumps([entry]))
        (folder / "truth").mkdir()
        env = dict(os.environ, CHAOS_PLAN=str(folder / "plan.json"), CHAOS_TRUTH=str(folder / "truth"), OMP_NUM_THREADS="1")
        port = free_port()
        nodes = []
        for rank in range(2):
            command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={rank}"]
            command += ["--master-addr=127.0.0.1", f"--master-port={port}", f"--nproc-per-node={WORKERS_PER_NODE}", WORKER]
            with (folder / f"stderr.{rank}").open("w") as errors:
                nodes.append(subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors))
        wait_for_all(nodes, ROUND_TIMEOUT_S)
        ranks = right_ranks(entry, folder / "truth", 0)
        right = []
        for rank in range(2):
            text = (folder / f"stderr.{rank}").read_text()
            named = re.search(r"Root Cause \(first observed failure\):.*?\n *rank *: (\d+) ", text, re.S)
            right.append(named is not None and int(named.group(1)) in ranks)
        its_node = entry["ranks"][0] // WORKERS_PER_NODE
        seen["runs"] += 1
        seen["right on the node of the failed rank"] += right[its_node]
        seen["right on the other node"] += right[1 - its_node]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--injections", type=int, default=300)
    parser.add_argument("--torch-share", type=float, default=0.1, help="of those within rounds: with torch.distributed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--build", default=os.environ.get("DDPRUN_BUILD_DIR", str(HERE.parents[1] / "build")))
    parser.add_argument("--keep", help="a folder for what was said in rounds that were judged wrongly")
    parser.add_argument("--torchrun", type=int, default=0, metavar="N", help="N runs of two nodes under torchrun instead")
    options = parser.parse_args()
    options.ddprun = str(pathlib.Path(options.build) / "bin" / "ddprun")
    options.token = os.urandom(32).hex()
    chance = random.Random(options.seed)
    if options.torchrun:
        seen = collections.Counter()
        for entry in plan_of(options.torchrun, 2, chance):
            run_under_torchrun(options, seen, {**entry, "step": max(1, entry["step"])})
        print(", ".join(f"{what}: {count}" for what, count in seen.items()))
        return 0
    score = Score()
    own = max(2, options.injections // 10)
    for index in range(own):
        if index % 3 == 2:
            run_out_of_memory(options, score, chance)
        else:
            run_killed_agent(options, score, 2 + index % 2, chance)
    left = options.injections - score.total()
    by_gloo = int(left * options.torch_share)
    for torch, count in ((False, left - by_gloo), (True, by_gloo)):
        for nodes, share in ((2, count - count // 2), (3, count // 2)):
            if share > 0:
                run_rounds(options, score, plan_of(share, nodes, chance), nodes, torch)
    for kind, count in sorted(score.right.items()):
        print(f"{count:5} {kind}")
    print(f"{score.total() - len(score.wrong)} of {score.total()} right")
    return 1 if score.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
