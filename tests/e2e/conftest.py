# SPDX-License-Identifier: Apache-2.0
"""What the tests share: the programs under test, how to run them with a deadline, and hosts to run them on."""

import json
import os
import pathlib
import random
import re
import resource
import shlex
import signal
import socket
import subprocess
import sys
import time

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DDPRUN_BUILD_DIR", REPO / "build"))
# Another folder of programs than the build's, such as that of an installed wheel (test_wheel_programs.py).
BIN = pathlib.Path(os.environ.get("DDPRUN_BIN_DIR", BUILD / "bin"))
DDPRUN = str(BIN / "ddprun")
TRAIN = str(BIN / "train")
SHELL_DDPRUN, SHELL_TRAIN = shlex.quote(DDPRUN), shlex.quote(TRAIN)  # as a word of a shell's command
PYTHON = str(REPO / "worker" / "python")  # of the package ddprun
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]


def torchrun_standalone():
    """`torchrun --standalone` by address: that flag meets at `localhost`, which a container may not know."""
    return [*TORCHRUN, "--nnodes=1", "--master-addr=127.0.0.1", f"--master-port={free_port()}"]


SESSION = f"{os.getpid()}-{os.urandom(4).hex()}"

# The runs' secret, so that no test makes a token file in the home of whoever runs the tests.
TOKEN = os.urandom(32).hex()

# What a launcher would set, and what would change a run behind a test's back.
CLEANED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS")


def clean_environment(**more):
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in CLEANED and not name.startswith(("PET_", "TORCHELASTIC_", "DDPRUN_", "GLOO_", "NCCL_", "OTEL_", "TRACE"))
    }
    # The tests' own Python is what a `.py` program is run with.
    env["PATH"] = os.path.dirname(sys.executable) + os.pathsep + env["PATH"]
    env["TEST_SESSION"] = SESSION
    env["DDPRUN_TOKEN"] = TOKEN
    env.update(more)
    return env


def kept_cache():
    """What says where deploy/ finds what it has installed: else it would install and build all anew."""
    return {name: os.environ[name] for name in ("DDPRUN_CACHE_DIR", "DDPRUN_PYTHON") if name in os.environ}


def processes_of_this_session():
    """(pid, command line) of every live process that carries this test session's mark in its environment."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if f"TEST_SESSION={SESSION}\0".encode() in (entry / "environ").read_bytes():
                found.append((entry.name, (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")))
        except OSError:
            pass
    return found


def worker_of(rank):
    """The pid of this session's `train` with that rank."""
    mark = f"\0RANK={rank}\0".encode()
    for pid, command in processes_of_this_session():
        if command.startswith(TRAIN) and mark in pathlib.Path(f"/proc/{pid}/environ").read_bytes():
            return int(pid)
    raise AssertionError(f"rank {rank} does not run")


def run(command, timeout=120, env=None, **options):
    """Runs to the end and returns the completed process, text captured; a run over its time fails the test."""
    return subprocess.run(
        [str(word) for word in command],
        timeout=timeout,
        env=env or clean_environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        **options,
    )


STARTED = []


def start(command, env=None, **options):
    """Starts without waiting; text captured. What a test leaves running is killed at its end."""
    process = subprocess.Popen(
        [str(word) for word in command],
        env=env or clean_environment(),
        text=True,
        **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
    )
    STARTED.append(process)
    return process


def torch_folder():
    """LibTorch as the build has it: the folder with include/ and lib/."""
    cache = (BUILD / "CMakeCache.txt").read_text()
    return re.search(r"^DDPRUN_TORCH_DIR:\w+=(.*)$", cache, re.MULTILINE)[1]


# Every version of torch that deploy/common.sh names, oldest first.
TORCHES = re.search(r"^torch_versions=\(([^)]*)\)", (REPO / "deploy" / "common.sh").read_text(), re.MULTILINE)[1].split()


def torch_minor():
    """Major and minor version of the build's LibTorch, "2.15"."""
    text = (pathlib.Path(torch_folder()) / "version.py").read_text()
    return re.search(r"^__version__ *= *['\"](\d+\.\d+)", text, re.MULTILINE)[1]


def wait_for(what, question, timeout=60):
    """The first true answer, within so many seconds; one that never comes fails the test."""
    deadline = time.monotonic() + timeout
    while not (answer := question()):
        assert time.monotonic() < deadline, f"{what} did not come within {timeout} s"
        time.sleep(0.01)
    return answer


def finish_all(processes, timeout=120):
    """Waits for all; returns (exit code, output, errors) of each. One over its time ends all and fails the test."""
    import threading

    results = [None] * len(processes)

    def wait(index):
        out, err = processes[index].communicate()
        results[index] = (processes[index].returncode, out, err)

    threads = [threading.Thread(target=wait, args=(i,), daemon=True) for i in range(len(processes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout)
    late = [i for i, result in enumerate(results) if result is None]
    for index in late:
        processes[index].kill()
    for thread in threads:
        thread.join(10)
    assert not late, f"processes {late} had not ended after {timeout} s: {results}"
    return results


def takes_less(seconds, call):
    """Whether one of some calls does: a busy machine may hold up any of them for seconds."""
    for _ in range(4):
        begun = time.monotonic()
        call()
        if time.monotonic() - begun < seconds:
            return True
    return False


PORT_MARKS = []  # sockets whose names say which ports this process has given away, until it ends


def free_port():
    """One that the kernel gives to nobody who asks for any port, as connections of other tests do all the time, and that
    no other test has been given: it may be long before something listens there."""
    while True:
        port = random.randrange(10_000, 29_000)  # below ddprun's default ports
        mark = socket.socket(socket.AF_UNIX)
        try:
            mark.bind(f"\0ddprun-test-port-{port}")
            with socket.socket() as listener:
                listener.bind(("127.0.0.1", port))
        except OSError:
            mark.close()
            continue
        PORT_MARKS.append(mark)
        return port


def agent_of(warden):
    """The agent's process id: the child of the keeper, which is the child of what a person started."""
    pid = warden
    for _ in ("keeper", "agent"):
        pid = int(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    return pid


def pytest_configure(config):
    config.addinivalue_line("markers", "nightly: a repetition, a count or a cross product; run with DDPRUN_NIGHTLY=1 only")


def pytest_collection_modifyitems(config, items):
    """Without DDPRUN_NIGHTLY=1 the tests that are not marked as nightly, with it those that are. Both: DDPRUN_NIGHTLY=all."""
    wanted = os.environ.get("DDPRUN_NIGHTLY", "0")
    if wanted == "all":
        return
    left_out = [item for item in items if (item.get_closest_marker("nightly") is not None) != (wanted == "1")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_sessionstart(session):
    """The test that has hung when ctest's time is nearly over says where; ctest would end it without a word."""
    timeout = int(os.environ.get("DDPRUN_TEST_TIMEOUT", 0))

    def expire(*_):
        session.shouldstop = "the time of this file is over"
        pytest.fail(f"the tests of this file have not ended within {timeout} s, of which this one was the last")

    if timeout:
        signal.signal(signal.SIGALRM, expire)
        signal.alarm(max(timeout - 15, 1))


SKIPPED = []  # (test, reason)
CPU_SECONDS = {}  # by test


def cpu_seconds():
    """Of this process and of all that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """With its fixtures: a fixture that several tests share counts for the first of them."""
    begin = cpu_seconds()
    try:
        return (yield)
    finally:
        CPU_SECONDS[item.name] = round(cpu_seconds() - begin, 2)


def note_skip(report):
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        SKIPPED.append((report.nodeid.rpartition("/")[2], reason.removeprefix("Skipped: ")))


def pytest_runtest_logreport(report):
    note_skip(report)


def pytest_collectreport(report):
    note_skip(report)


def pytest_sessionfinish():
    """What tests/ci_report.py reads: the CPU time of this file and of its tests with all their processes, and the skipped tests."""
    if file := os.environ.get("DDPRUN_TEST_RECORDS"):
        name = os.environ.get("DDPRUN_CTEST_NAME", "")
        record = {"test": name, "cpu": round(cpu_seconds(), 2), "tests": CPU_SECONDS, "skipped": SKIPPED}
        with open(file, "a") as records:
            records.write(json.dumps(record) + "\n")


@pytest.fixture
def chance():
    """Random numbers that a failed test's output tells how to repeat: DDPRUN_TEST_SEED=SEED."""
    seed = int(os.environ.get("DDPRUN_TEST_SEED") or random.randrange(1 << 30))
    print(f"DDPRUN_TEST_SEED={seed}")
    return random.Random(seed)


@pytest.fixture(autouse=True)
def own_folder(tmp_path_factory, monkeypatch):
    """What a program writes where it is started (--output-dir's default) is not in the way of another test's."""
    monkeypatch.chdir(tmp_path_factory.mktemp("started-here"))


@pytest.fixture(autouse=True)
def nothing_left_running():
    """A test that fails would leave its programs to the next one's time."""
    before = len(STARTED)  # a module's fixtures have started those
    yield
    for process in STARTED[before:]:
        if process.poll() is None:
            process.kill()
            process.wait()
    del STARTED[before:]


@pytest.fixture
def port():
    return free_port()
