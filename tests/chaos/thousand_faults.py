#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training that gets faults of all kinds, one after another, beside one that gets none: the models must be equal.

    tests/chaos/thousand_faults.py [--faults 1000] [--every 2] [--kinds all] [--seed N] [--build build] [--json FILE] [--keep]

Two nodes of two ranks and a ddprun-rendezvous with a journal, each started again by this program when it is killed, as
systemd would; `ddpctl chaos` injects the faults. Fails unless the training ends by itself, its model is bitwise that of a
run without faults, and no process of it is left. The full form takes --faults times --every seconds, and more.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
MARK = f"thousand-faults-{os.getpid()}"
# A step on two busy cores; the training is made long enough for the faults, and the time that they cost.
STEP_S = 0.025
SAMPLES = 4000


class Supervised:
    """A program that is started again when a signal has ended it, or what it says is no end of its own."""

    def __init__(self, name, command, env, folder, is_end):
        self.command, self.env, self.is_end = [str(word) for word in command], env, is_end
        self.log = open(folder / f"{name}.log", "ab")
        self.starts = 0
        self.code = None
        self.closing = False
        self.process = None
        self.thread = threading.Thread(target=self.supervise)
        self.thread.start()

    def supervise(self):
        while not self.closing:
            self.starts += 1
            self.process = subprocess.Popen(self.command, env=self.env, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
            self.code = self.process.wait()
            self.log.write(f"== ended with {self.code}\n".encode())
            self.log.flush()
            if self.is_end(self.code):
                return
            time.sleep(0.05)  # systemd's RestartSec is 0.1 s

    def close(self):
        self.closing = True
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(40)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.thread.join()
        self.log.close()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def environment(options):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("DDPRUN_", "TORCHELASTIC_"))}
    return dict(env, OMP_NUM_THREADS="1", DDPRUN_TOKEN=options.token, CHAOS_MARK=MARK)


def left_over():
    """(pid, command) of the processes that carry this program's mark."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if f"CHAOS_MARK={MARK}\0".encode() in (entry / "environ").read_bytes():
                found.append((int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()))
        except OSError:
            pass
    return found


def training(options, output):
    return [
        options.bin / "train", "--dataset", "synthetic", "--samples", SAMPLES, "--model", "netresdeep", "--batch-size", 4,
        "--device", "cpu", "--no-eval", "--deterministic", "--timeout", 20, "--epochs", 100000,
        "--max-steps", options.steps, "--checkpoint-every", 100, "--output-dir", output,
    ]  # fmt: skip


def node(options, rank, port, output, folder):
    flags = [
        "--nnodes", 2, "--node-rank", rank, "--nproc-per-node", 2, "--rdzv-endpoint", f"127.0.0.1:{port}",
        "--rdzv-id", "chaos", "--rdzv-conf", "is_host=0", "--max-restarts", 1_000_000, "--join-timeout", 120, "--spares", options.spares,
        "--event-log", folder / f"events-{rank}.jsonl",
    ]  # fmt: skip
    return [options.bin / "ddprun", *flags, *training(options, output)]


def run_of(options, folder, with_faults):
    """One whole training. Returns the report of the faults (None: without) and the seconds it took."""
    folder.mkdir()
    port = free_port()
    env = environment(options)
    output = folder / "out"
    began = time.monotonic()
    service = Supervised(
        "service",
        [options.bin / "ddprun-rendezvous", "--port", port, "--host", "127.0.0.1", "--journal", folder / "journal"],
        env, folder, lambda code: False,
    )  # fmt: skip
    nodes = [
        Supervised(f"node-{rank}", node(options, rank, port, output, folder), env, folder, lambda code: code == 0)
        for rank in range(2)
    ]
    report = None
    try:
        if with_faults:
            report = inject(options, port, env, folder)
        deadline = time.monotonic() + options.patience
        for one in nodes:
            one.thread.join(max(1, deadline - time.monotonic()))
        ended = [not one.thread.is_alive() and one.code == 0 for one in nodes]
        assert all(ended), f"the training had not ended by itself: {[one.code for one in nodes]}; see {folder}"
    finally:
        for one in [*nodes, service]:
            one.close()
    return report, time.monotonic() - began


def inject(options, port, env, folder):
    ctl = [str(options.bin / "ddpctl")]
    address = ["--rdzv-endpoint", f"127.0.0.1:{port}", "--timeout", "5"]
    deadline = time.monotonic() + 60
    while True:
        asked = subprocess.run([*ctl, "status", "--json", *address], env=env, capture_output=True, text=True)
        runs = json.loads(asked.stdout)["runs"] if asked.returncode == 0 else []
        if runs and runs[0]["progress"] and (runs[0]["progress"]["step"] or 0) > 5:
            break
        assert time.monotonic() < deadline, f"no step within a minute: {asked.stderr}"
        time.sleep(0.1)
    file = folder / "report.json"
    words = ["--every", options.every, "--count", options.faults, "--kinds", options.kinds, "--seed", options.seed]
    done = subprocess.run([*ctl, "chaos", *address, "--yes", "--report", file, *map(str, words)], env=env, stdout=sys.stdout)
    assert done.returncode == 0, f"ddpctl chaos ended with {done.returncode}"
    return json.loads(file.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--every", type=float, default=2)
    parser.add_argument("--kinds", default="all")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--spares", type=int, default=1)
    parser.add_argument("--steps", type=int, help="of the training; enough for the faults where it is not given")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(os.environ.get("DDPRUN_BUILD_DIR", REPO / "build")))
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--keep", action="store_true", help="leave the folder with all logs")
    options = parser.parse_args()
    options.bin = options.build / "bin"
    options.token = os.urandom(32).hex()
    options.steps = options.steps or int(200 + options.faults * options.every / STEP_S)
    options.patience = 120 + options.faults * options.every * 2
    folder = pathlib.Path(tempfile.mkdtemp(prefix="thousand-faults-"))
    print(f"seed {options.seed}, {options.steps} steps, in {folder}", flush=True)
    good = False
    try:
        report, seconds = run_of(options, folder / "faults", True)
        deadline = time.monotonic() + 20
        while left_over() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not left_over(), f"left over: {left_over()}"
        _, plain_seconds = run_of(options, folder / "plain", False)
        models = [(folder / name / "out" / "cifar_net.pth").read_bytes() for name in ("faults", "plain")]
        assert models[0] == models[1], f"the model differs from that of a run without faults; see {folder}"
        done = {kind: figures["done"] for kind, figures in report["kinds"].items()}
        assert sum(done.values()) > 0, report
        print(f"{sum(done.values())} faults of {len(done)} kinds in {seconds:.0f} s (without: {plain_seconds:.0f} s): models equal")
        if options.json:
            options.json.write_text(json.dumps(dict(report, whole_s=seconds, plain_s=plain_seconds, steps=options.steps)))
        good = True
        return 0
    except AssertionError as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1
    finally:
        if good and not options.keep:
            shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
