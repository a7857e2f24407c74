# SPDX-License-Identifier: Apache-2.0
"""What the checks share: the bundle's programs, how one is run with a deadline, and how a run of train is read."""

import contextlib
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
BENCH = HERE.parent / "bench"
LAUNCHERS = ("PET_", "TORCHELASTIC_")
RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
END_S = 5  # between asking a program to end and making it
LAST_LINES = 8


class Skip(Exception):
    """The check cannot be made here: one sentence that says why."""


class Failure(Exception):
    """What was checked is not so: one sentence."""


class Expired(Exception):
    """A program was not done when the check's time was up."""


def end(process):
    """Ends the process and all in its group, which it leads."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
            if number == signal.SIGTERM:
                continue  # what is left of its group
        if number == signal.SIGKILL:
            return


def last_lines(text):
    return " | ".join(line.strip() for line in text.strip().splitlines()[-LAST_LINES:])


class Workbench:
    """One machine and one bundle. `device` is cuda, or cpu for a rehearsal."""

    def __init__(self, bundle, torch_dir, device, quick, data_dir, work):
        self.bundle = bundle
        self.device = device
        self.quick = quick
        self.rehearsal = device == "cpu"
        self.data_dir = data_dir
        self.work = work
        self.deadline = float("inf")  # of the check that runs; time.monotonic()
        self.figures = {}  # of the check that runs: kept also if its time is up
        self.missing = {}  # of the check that runs: {figure: why it has none}
        self.keep = lambda: None  # called by a long check: its figures so far are worth keeping
        self.environment = {
            name: value for name, value in os.environ.items() if name not in RANKS and not name.startswith(LAUNCHERS)
        }
        self.environment["DDPRUN_TORCH"] = str(torch_dir)
        self.environment["DDPRUN_BUILD_DIR"] = str(bundle)
        self.environment["PYTHONDONTWRITEBYTECODE"] = "1"
        if self.rehearsal:
            self.environment["OMP_NUM_THREADS"] = "1"
        folders = [torch_dir / "lib", *sorted(torch_dir.parent.glob("nvidia/*/lib"))]
        self.torch_libraries = ":".join(map(str, folders))
        self.settings = None
        self.peers = {}  # that were started before they are needed, by their flags

    def left(self):
        return self.deadline - time.monotonic()

    # ---- Programs ----------------------------------------------------------------------------------------------------

    def gpu_test(self):
        for program in self.bundle.glob("libexec/torch-*/gpu_test"):
            return program
        raise Skip("this bundle has no gpu_test; deploy/bundle.sh --tests packs it")

    def start(self, command, environment=None, **options):
        return subprocess.Popen(
            list(map(str, command)), env={**self.environment, **(environment or {})}, start_new_session=True, text=True,
            errors="replace", **options,
        )

    def with_torch_libraries(self):
        """The environment's part that a program of the bundle needs which looks for LibTorch by itself."""
        return {"LD_LIBRARY_PATH": ":".join(filter(None, (self.environment.get("LD_LIBRARY_PATH"), self.torch_libraries)))}

    def run(self, command, more_environment=None):
        """(exit code, its output, its errors); Expired if it is not done at the deadline."""
        environment = {**self.environment, **(more_environment or {})}
        process = subprocess.Popen(
            list(map(str, command)), env=environment, start_new_session=True, text=True, errors="replace",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        try:
            out, err = process.communicate(timeout=max(0.1, self.left()))
        except subprocess.TimeoutExpired:
            raise Expired(f"{pathlib.Path(command[0]).name} was not done in time") from None
        finally:
            if process.poll() is None:
                end(process)
        return process.returncode, out, err

    def run_well(self, command, more_environment=None):
        """Its output; Failure if it ends with anything but 0."""
        code, out, err = self.run(command, more_environment)
        if code != 0:
            raise Failure(f"{' '.join(map(str, command))} ended with {code}: {last_lines(err or out)}")
        return out

    # ---- train -------------------------------------------------------------------------------------------------------

    def knows(self, setting):
        """Whether this bundle's train has it, by its name in a configuration file."""
        if self.settings is None:
            printed = self.run_well([self.bundle / "bin" / "train", "--print-config"])
            self.settings = set(re.findall(r"^(?:# )?(\w+):", printed, re.MULTILINE))
        return setting in self.settings

    def can_graph(self):
        return not self.rehearsal and self.knows("cuda_graph")

    def why_no_graph(self):
        return "a CUDA graph needs a GPU" if self.rehearsal else "the train of this bundle has no --cuda-graph"

    def choose(self, setting, on):
        """The flag for a setting of yes and no that a CPU or an older train does not have."""
        if self.rehearsal or not self.knows(setting):
            return []
        return ["--" + ("" if on else "no-") + setting.replace("_", "-")]

    def device_flags(self, graph, backend):
        flags = ["--device", self.device] if self.knows("device") else []
        return [*flags, "--backend", "gloo" if self.rehearsal else backend,
                *self.choose("cuda_graph", graph), *self.choose("device_data", True)]

    @contextlib.contextmanager
    def train(self, *flags, ranks=1, graph=False, backend="nccl"):
        """Runs it by ddprun to its end; the folder of what it wrote is there while the context lasts."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.work))
        try:
            command = [self.bundle / "bin" / "ddprun", "--standalone", "--nproc-per-node", ranks, "train"]
            self.run_well([*command, *self.device_flags(graph, backend), *flags, "--output-dir", folder])
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


def windows(folder):
    """The lines of metrics.jsonl that are of training: one for each --log-every steps."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "loss/train" in line]


class Peer:
    """tests/bench/train_peer.py, which stays and trains so many steps when asked."""

    @staticmethod
    def ready_made(bench, *flags):
        """The one that start_ahead() has started with these flags, else a new one."""
        return bench.peers.pop(tuple(map(str, flags)), None) or Peer(bench, *flags)

    @staticmethod
    def start_ahead(bench, *flags):
        """Imports and compiles while other checks run; it waits, idle, until it is taken."""
        bench.peers[tuple(map(str, flags))] = Peer(bench, *flags)

    def __init__(self, bench, *flags):
        self.bench = bench
        self.errors = tempfile.TemporaryFile("w+", dir=bench.work)
        command = [sys.executable, BENCH / "train_peer.py", "--serve", "--marks", "3", "--device", bench.device, *flags]
        self.process = bench.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors)
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def _wait_for(self, word):
        while True:
            try:
                line = self.lines.get(timeout=max(0.1, self.bench.left()))
            except queue.Empty:
                raise Expired("the Python peer was not done in time") from None
            if line is None:
                self.errors.seek(0)
                raise Skip(f"the Python peer ended: {last_lines(self.errors.read())}")
            if line.startswith(word):
                return line.split()

    def wait_until_ready(self):
        self._wait_for("steps 3")

    def seconds_for(self, steps):
        with contextlib.suppress(BrokenPipeError):  # the end of its output then says why
            self.process.stdin.write(f"{steps}\n")
            self.process.stdin.flush()
        return float(self._wait_for("window")[2])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end(self.process)
        self.errors.close()
