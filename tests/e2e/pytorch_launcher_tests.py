#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own tests of torchrun and its agent, with ddprun in torchrun's place.

    tests/e2e/pytorch_launcher_tests.py PATH... [--only NAME] [--verbose] [--torchrun]

Each PATH is a test file of PyTorch's test/distributed, with its folder `bin` beside it: launcher/test_run.py,
launcher/launch_test.py, launcher/api_test.py, elastic/agent/server/test/local_elastic_agent_test.py or
elastic/multiprocessing/api_test.py. They are not kept here. What they call in torch (torch.distributed.run.main,
launch.main, launch_agent, LocalElasticAgent, start_processes, Std.from_str) becomes a command line of ddprun;
everything else is torch's. A Python function for the workers is carried by pytorch_launcher_worker.py. Where the tests
start an etcd server, ddprun-rendezvous is started. Tests that are not applicable are named with the reason. --torchrun
leaves torch as it is, for comparison. Needs the packages that torch's tests need (expecttest). Exits with 1 if a test
failed.
"""

import argparse
import ctypes
import functools
import glob
import importlib
import io
import json
import multiprocessing
import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

import torch
import torch.distributed.elastic.agent.server.local_elastic_agent as agents
import torch.distributed.elastic.multiprocessing as processes
import torch.distributed.elastic.rendezvous.etcd_server as etcd
import torch.distributed.elastic.rendezvous.registry as registry
import torch.distributed.launch
import torch.distributed.launcher.api as launcher
import torch.distributed.run
import torch.testing._internal.common_utils  # noqa: F401  (once, before the forks)
from conftest import BIN, DDPRUN, clean_environment, free_port, wait_for
from pytorch_store_tests import in_a_fork
from torch.distributed.elastic.agent.server.api import RunResult, WorkerState
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

WORKER = pathlib.Path(__file__).resolve().parent / "pytorch_launcher_worker.py"
TEST_S = 400  # the widest has 25 workers that import torch
START_S = 60
BACKENDS = ("c10d", "etcd", "etcd_v2")  # the first that a test has is run

IN_PROCESS = "tests a Python function or class of torch in its own process"
MOCKED = "replaces parts of torch's agent in its own process"
NOT_APPLICABLE = {
    **dict.fromkeys(("test_min_max_nodes_parse", "test_get_entrypoint_name", "test_to_map"), IN_PROCESS),
    **dict.fromkeys(("test_validate_full_rank", "test_args_env_len_mismatch", "test_wrap_bad"), IN_PROCESS),
    **dict.fromkeys(("test_is_failed", "test_get_failures", "test_invalid_log_dir"), IN_PROCESS),
    **dict.fromkeys(("test_launch_elastic_agent_raise_exception", "test_launch_shutdown"), MOCKED),
    **dict.fromkeys(("test_rdzv_handler_shutdown_on_agent_signal", "test_shutdown_called"), MOCKED),
    **dict.fromkeys(("test_rdzv_handler_shutdown_on_agent_error", "test_barrier_failed"), MOCKED),
    "test_launch_elastic_worker_raise_exception": "counts the calls of a mock of torch's events.record",
    "test_wait_for_all_child_procs_to_exit": MOCKED,
    "test_multiprocessing_context_poll_raises_exception": MOCKED,
    "test_nproc_gpu_launch_configurations": "replaces torch.cuda by a mock with three GPUs",
    "test_is_not_torchelastic_launched": "starts no launcher",
    "test_check_master_addr_port_override": "WorkerSpec.master_addr, for which torchrun has no flag either",
    "test_binary_incorrect_entrypoint": "the program is executed by pytorch_launcher_worker.py, not by ddprun",
    "test_function_raise": "the path of torchrun's log folder (TORCHRUN.md: --log-dir)",
}

# ---- ddprun


def bind_to_parent():
    """A test kills an agent by killing the Python process that it runs in."""
    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)


class Run:
    """One ddprun, and what it left."""

    def __init__(self, words):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="torch-"))
        command = [DDPRUN, "--verdict-file", self.folder / "verdict", *words]
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=(self.folder / "out").open("w"),
            stderr=(self.folder / "err").open("w"),
            preexec_fn=bind_to_parent,
        )

    def end(self):
        self.process.wait()
        sys.stdout.write((self.folder / "out").read_text())
        sys.stderr.write((self.folder / "err").read_text())
        return self

    @property
    def verdict(self):
        """Without one the workers were never to be started: torch raises these errors then."""
        path = self.folder / "verdict"
        if path.exists():
            return json.loads(path.read_text())
        raise ValueError((self.folder / "err").read_text())

    def failures(self, log_dir=None, by="rank"):
        """The cause of the failure, as torch has it. Nodes without the failed worker have it too."""
        cause = self.verdict["cause"]
        if self.process.returncode == 0:
            return {}
        code = cause["exit_code"] if cause["signal"] is None else -getattr(signal, cause["signal"])
        found = glob.glob(f"{log_dir}/*/round_*/rank_{cause['rank']}/error.json") if log_dir else []
        file = max(found, key=os.path.getmtime, default="<N/A>")
        return {cause[by]: ProcessFailure(cause["local_rank"], cause["pid"], code, file)}


class Job:
    """A function, or a program whose arguments differ by rank, that the workers run."""

    def __init__(self, entrypoint, args, envs=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="torch-"))
        function = None if isinstance(entrypoint, str) else entrypoint
        module = sys.modules[function.__module__] if function else None
        job = {
            "command": None if function else entrypoint,
            "folder": os.path.dirname(getattr(module, "__file__", "")),
            "module": module and module.__name__,
            "function": function and function.__name__,
            "by_rank": envs is not None,
            "args": args,
            "envs": envs or {},
        }
        (self.folder / "job").write_bytes(pickle.dumps(job))
        self.command = [WORKER, self.folder]

    def values(self):
        paths = self.folder.glob("value*[0-9]")
        return {int(path.name.removeprefix("value")): pickle.loads(path.read_bytes()) for path in paths}


def log_flags(logs, template):
    words = ["--log-dir", logs.root_log_dir]
    for flag, value in (("--redirects", logs._redirects), ("--tee", logs._tee)):
        by_rank = value.items() if isinstance(value, dict) else []
        words += [flag, ",".join(f"{rank}:{int(std)}" for rank, std in by_rank) if by_rank else int(value)]
    return words + (["--log-line-prefix-template", template] if template else [])


def meeting_flags(backend, endpoint, run_id, config):
    words = ["--rdzv-endpoint", endpoint]
    config = {name: str(value).lower() for name, value in config.items()}
    if backend.startswith("etcd"):
        config["is_host"] = "false"  # a service of its own runs there
    else:
        words += ["--rdzv-backend", backend]
    if backend == "static":
        words += ["--node-rank", config.pop("rank")]
    if config:
        words += ["--rdzv-conf", ",".join(f"{name}={value}" for name, value in config.items())]
    return words + (["--rdzv-id", run_id] if run_id else [])


# ---- What the tests call


def run_main(args=None):
    run = Run(args).end()
    if run.process.returncode != 0:
        raise ChildFailedError("main", run.failures())


def launch_main(args=None):
    """The module gives each worker --local-rank; TORCHRUN.md has what to write for that."""
    words = [word for word in args if word != "--use-env"]
    run_main(words if "--use-env" in args else [*words, "--local-rank=${local_rank}"])


def launch_agent(config, entrypoint, args):
    job = None if isinstance(entrypoint, str) else Job(entrypoint, args)
    command = job.command if job else ["--no-python", entrypoint, *args]
    words = ["--nnodes", f"{config.min_nodes}:{config.max_nodes}", "--nproc-per-node", config.nproc_per_node]
    words += ["--max-restarts", config.max_restarts, "--monitor-interval", config.monitor_interval]
    words += meeting_flags(config.rdzv_backend, config.rdzv_endpoint, config.run_id, config.rdzv_configs)
    run = Run([*words, *command]).end()
    if run.process.returncode != 0:
        raise ChildFailedError(launcher._get_entrypoint_name(entrypoint, args), run.failures())
    return job.values() if job else {}


class Handler:
    def __init__(self, parameters):
        self.parameters = parameters

    def shutdown(self):
        return True


class Agent:
    """In the place of LocalElasticAgent."""

    def __init__(self, spec, logs_specs, start_method="spawn", exit_barrier_timeout=300, log_line_prefix_template=None):
        self.spec, self.logs, self.template = spec, logs_specs, log_line_prefix_template

    def run(self, role="default"):
        spec, at = self.spec, self.spec.rdzv_handler.parameters
        job = Job(spec.entrypoint, spec.args)
        words = ["--nnodes", f"{at.min_nodes}:{at.max_nodes}", "--nproc-per-node", spec.local_world_size]
        words += ["--max-restarts", spec.max_restarts, "--role", spec.role, *log_flags(self.logs, self.template)]
        words += meeting_flags(at.backend, at.endpoint, at.run_id, at.config)
        begun = time.monotonic()
        run = Run([*words, *job.command]).end()
        self._total_execution_time = time.monotonic() - begun
        self._remaining_restarts = spec.max_restarts - run.verdict["restarts_used"]
        failed = run.process.returncode != 0
        self.state = WorkerState.FAILED if failed else WorkerState.SUCCEEDED
        return RunResult(self.state, {} if failed else job.values(), run.failures(self.logs.root_log_dir))

    def get_worker_group(self):
        return self


class Context:
    """What start_processes() returns."""

    def __init__(self, name, entrypoint, args, envs, logs_specs, log_line_prefixes=None, start_method="spawn", **_):
        self.logs, self.nprocs = logs_specs, len(args)
        self.job = Job(entrypoint, args, envs)
        self.is_function = not isinstance(entrypoint, str)
        template = log_line_prefixes and log_line_prefixes[0].replace("0", "${rank}")
        words = ["--standalone", "--nproc-per-node", self.nprocs, *log_flags(logs_specs, template)]
        self.run = Run([*words, *self.job.command])
        self._stdout_tail = self._stderr_tail = self
        files = [self.job.folder / f"pid{rank}" for rank in range(self.nprocs)]
        wait_for("the workers", lambda: self.stopped() or all(file.exists() for file in files), START_S)
        if not all(file.exists() for file in files):
            self.run.verdict  # raises
        self.pid_of = {rank: int(file.read_text()) for rank, file in enumerate(files)}

    def pids(self):
        return self.pid_of

    def stopped(self):
        return self.run.process.poll() is not None

    def close(self, death_sig=signal.SIGTERM, timeout=30):
        self.run.process.send_signal(death_sig)
        self.run.process.wait(timeout)

    def files(self, stream, bit):
        """The paths as torch has them: empty where the stream has no file."""
        paths = {}
        for rank in range(self.nprocs):
            given = (self.logs._redirects, self.logs._tee)
            flags = [value.get(rank, 0) if isinstance(value, dict) else value for value in given]
            paths[rank] = ""
            if any(flag & bit for flag in flags):
                [paths[rank]] = glob.glob(f"{self.logs.root_log_dir}/*/round_*/rank_{rank}/{stream}.log")
        return paths

    stdouts = property(lambda self: self.files("stdout", processes.Std.OUT))
    stderrs = property(lambda self: self.files("stderr", processes.Std.ERR))

    def wait(self, timeout=-1, period=1):
        try:
            self.run.process.wait(timeout if timeout > 0 else None)
        except subprocess.TimeoutExpired:
            return None
        failures = self.run.end().failures(self.logs.root_log_dir, "local_rank")
        values = self.job.values() if self.is_function else dict.fromkeys(range(self.nprocs))
        return processes.api.RunProcsResult({} if failures else values, failures, self.stdouts, self.stderrs)


class Service:
    """In the place of an etcd server."""

    def __init__(self, *_, **__):
        self.port = free_port()

    def start(self, *_, **__):
        words = ["--port", self.port, "--rdzv-id", "unnamed"]
        command = [str(word) for word in (BIN / "ddprun-rendezvous", *words)]
        pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.process = subprocess.Popen(command, **pipe, preexec_fn=bind_to_parent)
        self.process.stdout.readline()

    def get_endpoint(self):
        return f"127.0.0.1:{self.port}"

    def stop(self):
        self.process.terminate()
        self.process.wait()


def parsed_by_ddprun(parse, text):
    done = subprocess.run([DDPRUN, "--dry-run", "--redirects", text, "true"], capture_output=True, text=True)
    if done.returncode != 0:
        raise ValueError(done.stderr)
    try:
        return parse(text)
    except ValueError:
        return None  # it should have been rejected


def put_ddprun_in_its_place():
    torch.distributed.run.main = run_main
    torch.distributed.launch.main = launch_main
    launcher.launch_agent = launch_agent  # elastic_launch calls it
    agents.LocalElasticAgent = Agent
    registry.get_rendezvous_handler = Handler
    processes.start_processes = Context
    processes.Std.from_str = functools.partial(parsed_by_ddprun, processes.Std.from_str)
    etcd.EtcdServer = Service
    # The tests' own processes keep what was replaced.
    fork = multiprocessing.get_context("fork")
    multiprocessing.get_context = lambda *_: fork
    torch.multiprocessing.get_context = lambda *_: fork
    torch.multiprocessing.spawn = functools.partial(torch.multiprocessing.start_processes, start_method="fork")


# ---- The tests


def load(path):
    sys.path.insert(0, str(path.parent))
    return importlib.import_module(path.stem)


def names_in(path, folder):
    def write():
        found = vars(load(path)).items()
        classes = [name for name, one in found if isinstance(one, type) and issubclass(one, unittest.TestCase)]
        names = unittest.defaultTestLoader.getTestCaseNames
        tests = [f"{one}.{test}" for one in classes for test in names(getattr(sys.modules[path.stem], one))]
        (folder / "names").write_text("\n".join(tests))
        return 0

    code = in_a_fork(write, folder / "said", TEST_S)
    if code != 0:
        sys.exit(f"cannot read the tests: {code}\n{(folder / 'said').read_text()}")
    return (folder / "names").read_text().split()


def base_of(name):
    found = re.fullmatch(r"(.*?)_(c10d|etcd_v2|etcd)", name)
    return found.groups() if found else (name, BACKENDS[0])


def why_not(name, names, torchrun):
    """Why the test is not applicable, if it is not."""
    of_class, test = name.split(".")
    base, backend = base_of(test)
    if of_class == "ForkServerTest":
        return "repeats other tests with another start method of Python functions"
    for first in BACKENDS[: BACKENDS.index(backend)]:
        if f"{of_class}.{base}_{first}" in names:
            return f"repeats {base}_{first} with a backend that ddprun rejects"
    if torchrun and test.endswith(BACKENDS[1:]):
        return "needs an etcd server"
    return NOT_APPLICABLE.get(base)


def run_one(path, name, torchrun):
    """In a process of its own: exits with 0 if the test passed, with 2 if it skipped itself."""
    if torchrun:
        etcd.EtcdServer = unittest.mock.MagicMock
    else:
        put_ddprun_in_its_place()
    suite = unittest.defaultTestLoader.loadTestsFromName(name, load(path))
    said = io.StringIO()
    result = unittest.TextTestRunner(said, verbosity=2).run(suite)
    print(said.getvalue())
    if not result.wasSuccessful() or result.testsRun != 1:
        return 1
    return 2 if result.skipped else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", type=pathlib.Path, nargs="+", metavar="PATH")
    parser.add_argument("--only", default="", help="a part of the names of the tests to run")
    parser.add_argument("--verbose", action="store_true", help="also name those that passed")
    parser.add_argument("--torchrun", action="store_true", help="run the same tests with torch's own launcher")
    arguments = parser.parse_args()
    environment = clean_environment()
    os.environ.clear()
    os.environ.update(environment)
    counts = {"passed": 0, "not applicable": 0, "skipped": 0, "failed": 0}

    def tell(name, what, why=""):
        counts[what] += 1
        if arguments.verbose or what != "passed":
            print(f"{what:14}  {name}{': ' if why else ''}{why}", flush=True)

    for path in [path.resolve() for path in arguments.paths]:
        with tempfile.TemporaryDirectory() as root:
            names = names_in(path, pathlib.Path(root))
        for name in [name for name in names if arguments.only in name]:
            if why := why_not(name, names, arguments.torchrun):
                tell(name, "not applicable", why)
                continue
            with tempfile.TemporaryDirectory() as root:
                os.environ["TMPDIR"] = root
                tempfile.tempdir = None
                said = pathlib.Path(root) / "said"
                code = in_a_fork(functools.partial(run_one, path, name, arguments.torchrun), said, TEST_S)
                what = {0: "passed", 2: "skipped"}.get(code, "failed")
                tell(name, what, f"{code}\n{said.read_text()}" if what == "failed" else "")
            os.environ.pop("TMPDIR")
            tempfile.tempdir = None
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
