#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills a launcher, or a part of it, and looks for what is still alive of its run a second later.

    tests/chaos/orphans.py [--kills 1000] [--launcher ddprun] [--victims worker,agent,...] [--seed 1] [--flags "..."]

Each time: two workers, each with processes of random kinds (untidy_worker.py), then one SIGKILL, or several, for a victim
in turn:

    worker      one worker
    agent       the workers' parent
    keeper      ddprun's process between the two others
    warden      the process that a person started
    group       the process group of that one, as a shell's `kill -9 %1`
    named       every process that is called as the launcher is, as `pkill -9 -f ddprun` and `killall` do it
    all         worker, agent and warden, in random order, 0 to 2 ms between two
    frozen      the warden, the agent having been stopped before (SIGSTOP)
    everything  every process of the launcher and every worker, in random order: nobody is left who could clear up

What belongs to the run carries a mark in its environment; /proc shows who is alive. Alive is what is no zombie. The second
begins with the kill, or, where a launcher survives that and ends in its own time, with its end. What is left is ended by
this program. Exit code 1: something was left, other than by `everything`.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import shlex
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("DDPRUN_BUILD_DIR", HERE.parents[1] / "build"))
MARK = "ORPHANS_MARK"
WORKERS = 2
BOUND_S = 1.0
READY_S = 60.0
# torchrun waits 30 s between SIGTERM and SIGKILL.
LAUNCHER_END_S = 60.0
SHAPES = ("child", "stopped", "setsid", "double", "daemon", "deaf", "chain", "self-stopped", "self-deaf")
VICTIMS = {
    "ddprun": ("worker", "agent", "keeper", "warden", "group", "named", "all", "frozen"),
    "torchrun": ("worker", "agent", "group", "all"),
}


def command_of(launcher, flags):
    if launcher == "torchrun":
        return [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={WORKERS}", *flags, "--no-python"]
    # A worker's own death leaves the others the time to end that they are given.
    return [str(BUILD / "bin" / "ddprun"), "--standalone", f"--nproc-per-node={WORKERS}", "--term-timeout=0.2", *flags]


def stat_of(pid):
    """(name, state, parent) of a process, or None."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    name, rest = text[text.index("(") + 1 :].rsplit(")", 1)
    state, parent = rest.split()[:2]
    return name, state, int(parent)


def is_called(pid, name):
    try:
        command_line = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return name in pathlib.Path(f"/proc/{pid}/comm").read_text() or name in command_line[0].decode()
    except OSError:
        return False


def alive(mark):
    """pids of what carries the mark. A zombie has no environment any more."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    found.append(int(entry))
        except OSError:
            pass
    return found


def kill(pid, number=signal.SIGKILL):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


class Run:
    def __init__(self, options, rng):
        self.rng = rng
        self.mark = os.urandom(12).hex()
        self.folder = tempfile.TemporaryDirectory(prefix="orphans-")
        path = os.path.join(self.folder.name, "ready")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.listener.bind(path)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.listener.settimeout(READY_S)
        self.shapes = [shape for shape in SHAPES if rng.random() < 0.4]
        self.launcher = subprocess.Popen(
            [*shlex.split(options.prefix), *command_of(options.launcher, shlex.split(options.flags)), sys.executable, "-IS",
             str(HERE / "untidy_worker.py"), path, *self.shapes],
            env=dict(os.environ, **{MARK: self.mark, "XDG_RUNTIME_DIR": self.folder.name}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        self.workers = [self.sender() for _ in range(WORKERS)]
        # From the workers' parent up to the process that was started here.
        self.chain = [stat_of(self.workers[0])[2]]
        while self.chain[-1] != self.launcher.pid:
            self.chain.append(stat_of(self.chain[-1])[2])

    def sender(self):
        """The pid, as it is here, of a worker that says it is ready."""
        _, ancillary, _, _ = self.listener.recvmsg(1, socket.CMSG_SPACE(struct.calcsize("3i")))
        return struct.unpack("3i", ancillary[0][2])[0]

    def strike(self, victim):
        agent, warden = self.chain[0], self.launcher.pid
        keeper = self.chain[1] if len(self.chain) > 2 else warden
        if victim == "worker":
            kill(self.rng.choice(self.workers))
        elif victim == "agent":
            kill(agent)
        elif victim == "keeper":
            kill(keeper)
        elif victim == "warden":
            kill(warden)
        elif victim == "group":
            os.killpg(warden, signal.SIGKILL)
        elif victim == "named":
            name = stat_of(warden)[0]
            for pid in [pid for pid in alive(self.mark) if is_called(pid, name)]:
                kill(pid)
        elif victim == "frozen":
            kill(agent, signal.SIGSTOP)
            kill(warden)
        else:
            pids = [*self.workers, *(self.chain if victim == "everything" else {agent, warden})]
            self.rng.shuffle(pids)
            for pid in pids:
                kill(pid)
                if victim == "all":
                    end = time.monotonic() + self.rng.uniform(0, 0.002)
                    while time.monotonic() < end:
                        pass

    def settle(self):
        """(pids that are left, seconds until none was)."""
        begin = ended = time.monotonic()
        while True:
            left = alive(self.mark)
            now = time.monotonic()
            if not left:
                self.launcher.wait()
                return [], now - begin
            if self.launcher.poll() is None and now - begin < LAUNCHER_END_S:
                try:
                    self.launcher.wait(0.02)
                except subprocess.TimeoutExpired:
                    pass
                ended = time.monotonic()
                continue
            if now - ended > BOUND_S:
                return left, now - begin
            time.sleep(0.01)

    def clear(self, left):
        for pid in left:
            kill(pid)
        while alive(self.mark):
            for pid in alive(self.mark):
                kill(pid)
        self.launcher.wait()
        self.listener.close()
        self.folder.cleanup()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--launcher", choices=sorted(VICTIMS), default="ddprun")
    parser.add_argument("--victims", help="in turn; default: all but everything")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--prefix", default="", help="before the launcher, as `unshare -fp --kill-child --mount-proc`")
    parser.add_argument("--flags", default="", help="more flags for the launcher")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    victims = options.victims.split(",") if options.victims else VICTIMS[options.launcher]
    rng = random.Random(options.seed)
    seen = collections.defaultdict(list)
    for number in range(options.kills):
        victim = victims[number % len(victims)]
        run = Run(options, rng)
        run.strike(victim)
        left, took = run.settle()
        seen[victim].append((len(left), took))
        if left:
            names = ", ".join(f"{pid} ({name}, {state})" for pid in left for name, state, _ in [stat_of(pid)])
            print(f"kill {number} of {victim} ({' '.join(run.shapes)}) left {len(left)}: {names}", flush=True)
        run.clear(left)

    print(f"{'victim':12} {'kills':>6} {'runs with':>10} {'processes':>10} {'until none, s':>14}")
    print(f"{'':12} {'':>6} {'orphans':>10} {'left':>10} {'median':>7} {'max':>6}")
    failed = False
    for victim, results in seen.items():
        dirty = [count for count, _ in results if count]
        clean = sorted(took for count, took in results if not count) or [float("nan")]
        failed = failed or (bool(dirty) and victim != "everything")
        print(f"{victim:12} {len(results):6} {len(dirty):10} {sum(dirty):10} {clean[len(clean) // 2]:7.3f} {clean[-1]:6.3f}")
    if options.json:
        options.json.write_text(json.dumps({"launcher": options.launcher, "seed": options.seed, "seen": seen}) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
