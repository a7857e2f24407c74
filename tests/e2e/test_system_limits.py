# SPDX-License-Identifier: Apache-2.0
"""Limits of processes, CPU time and shared memory: what they end looks like something else, so a sentence names them."""

import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
from conftest import BIN, DDPRUN, REPO, clean_environment, free_port, run, wait_for

sys.path.insert(0, str(REPO / "tests" / "testing"))
from faults import Faults  # noqa: E402

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs a user and mounts of its own")

# The kernel counts a user's processes.
USER = "28901"
SENTENCE = re.compile(r"only \d+ of the \d+ threads and processes .*`ulimit -u` \(\d+\)|ulimit -u|no thread can be started")


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Where that user may execute them."""
    folder = tmp_path_factory.mktemp("programs")
    for name in ("ddprun", "ddpctl", "ddprun-rendezvous"):
        shutil.copy(BIN / name, folder)
    for path in (folder, *folder.parents):
        if os.stat(path).st_uid == 0 and path.is_relative_to("/tmp"):
            path.chmod(path.stat().st_mode | 0o055)
    return folder


def limited(processes, command, env):
    command = ["prlimit", f"--nproc={processes}", "setpriv", "--reuid", USER, "--regid", USER, "--clear-groups", *command]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/")


def end_of(process):
    try:
        said = process.communicate(timeout=60)[0]
    finally:
        process.terminate()  # else it counts among the user's processes in the next tests
    assert not re.search("terminate called|assertion|SIGABRT|name service", said), said
    assert 0 <= process.returncode < 128, (process.returncode, said)
    return process.returncode, said


def check(process):
    code, said = end_of(process)
    assert "goodput" not in said, said
    assert code == 0 or SENTENCE.search(said), (code, said)
    return code


def test_a_run_of_one_node(programs):
    env = clean_environment(HOME="/nonexistent")
    codes = [check(limited(n, [programs / "ddprun", "--standalone", "--nproc-per-node", "2", "true"], env)) for n in range(1, 13)]
    assert codes[0] == 1 and codes[-1] == 0, codes


def test_a_run_of_two_nodes(programs):
    """Whose processes are counted together."""
    env = clean_environment(HOME="/nonexistent")
    ends = []
    for n in (8, 12, 18, 24, 30, 36, 80):
        flags = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", free_port(), "--join-timeout", "3", "--node-rank"]
        nodes = [limited(n, [programs / "ddprun", *map(str, flags), rank, "true"], env) for rank in ("0", "1")]
        ends.append([end_of(node) for node in nodes])
    # While one of them counts, the other one may not be executed (126).
    assert {code for code, _ in ends[0]} <= {1, 126} and any(SENTENCE.search(said) for _, said in ends[0]), ends
    assert [code for code, _ in ends[-1]] == [0, 0], ends


def test_threads_run_out_after_the_check(tmp_path):
    """As where another program of the user takes them: gRPC's timers then end for good, and no call of it returns."""
    nodes = []
    for count in range(20, 34):
        (tmp_path / str(count)).mkdir()
        faults = Faults(tmp_path / str(count))
        faults.set(f"thread EAGAIN from={count}")
        flags = ["--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1", "--master-port", free_port(), "--join-timeout", "1"]
        command = [DDPRUN, *map(str, flags), "true"]
        env = clean_environment(**faults.env())
        nodes.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    ends = [end_of(node) for node in nodes]
    assert {code for code, _ in ends} == {1}, ends
    assert any("threads for the network do not answer" in said for _, said in ends), ends


@pytest.mark.parametrize("command", [["ddpctl", "status", "--rdzv-endpoint", "127.0.0.1:1"], ["ddprun-rendezvous", "--port", "0"]])
def test_other_programs(programs, command):
    env = clean_environment(HOME="/nonexistent")
    for n in (3, 6, 10):
        assert check(limited(n, [programs / command[0], *command[1:]], env)) == 1


# ---- Workers


def test_a_kill_by_the_limit_of_cpu_time_is_named():
    done = run(["sh", "-c", f"ulimit -t 1; exec {DDPRUN} --standalone sh -c 'while :; do :; done'"])
    assert done.returncode == 137, done
    assert re.search(r"it had used \d s of CPU time, and `ulimit -t` is 1: raise that limit", done.stderr), done.stderr
    assert "out-of-memory" not in done.stderr, done.stderr


def test_a_bus_error_with_a_full_dev_shm_is_named():
    """The first file takes all there is; a write to the second one, which is a hole, gets SIGBUS."""
    job = (
        "import mmap\n"
        "open('/dev/shm/a', 'wb', 0).write(bytes(1 << 20))\n"
        "hole = open('/dev/shm/b', 'w+b')\n"
        "hole.truncate(1 << 16)\n"
        "mmap.mmap(hole.fileno(), 0)[0] = 1\n"
    )
    mount = "mount -t tmpfs -o size=1m none /dev/shm"
    done = run(["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh", DDPRUN, "--standalone", sys.executable, "-c", job])
    assert done.returncode == 128 + signal.SIGBUS, done
    assert "/dev/shm (1 MiB) is full: give the container more (docker --shm-size" in done.stderr, done.stderr


@pytest.mark.parametrize("closed", ["<&-", "<&- 2>&-"])
def test_a_closed_stream_is_no_workers_first_file(closed):
    job = "print(open('/etc/passwd').fileno() > 2, open('/proc/self/fd/0').read() == '')"
    done = run(["sh", "-c", f'exec "$@" {closed}', "sh", DDPRUN, "--standalone", sys.executable, "-c", job])
    assert (done.returncode, done.stdout) == (0, "[0] True True\n"), done


def test_a_closed_stdout_is_no_socket_of_the_service():
    service = subprocess.Popen(["sh", "-c", 'exec "$@" >&-', "sh", BIN / "ddprun-rendezvous", "--port", "0"], env=clean_environment())
    try:
        program = f"/proc/{service.pid}/exe"
        wait_for("the service", lambda: os.readlink(program).endswith("ddprun-rendezvous"), 20)
        wait_for("its threads", lambda: len(os.listdir(f"/proc/{service.pid}/task")) > 10, 20)
        assert os.readlink(f"/proc/{service.pid}/fd/1") == "/dev/null"
    finally:
        service.terminate()
        service.wait(30)


def test_a_variable_that_is_too_long_is_named(tmp_path):
    file = tmp_path / "variables"
    file.write_text(f"HUGE={'x' * 140_000}\n")
    done = run([DDPRUN, "--standalone", "--env-file", file, "true"])
    assert done.returncode == 126, done
    assert "Argument list too long; arguments and environment have" in done.stderr, done.stderr
    assert "of which the variable HUGE has 136; Linux allows 128 KiB each" in done.stderr, done.stderr
