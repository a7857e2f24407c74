# SPDX-License-Identifier: Apache-2.0
"""Older kernels and containers whose filter forbids newer system calls: ddprun works without them, or one sentence says
what is missing. Each call fails with ENOSYS (an older kernel) and with EPERM (a filter), by a seccomp filter of the test's own."""

import ctypes
import errno
import fcntl
import os
import platform
import re
import signal
import struct
import subprocess

import pytest
from conftest import BIN, DDPRUN, clean_environment, processes_of_this_session, run, start, wait_for

# Those from 424 on have the same number on all machines.
ARM = platform.machine() == "aarch64"
CALLS = {
    "memfd_create": 279 if ARM else 319,
    "statx": 291 if ARM else 332,
    "pidfd_send_signal": 424,
    "pidfd_open": 434,
    "clone3": 435,
    "close_range": 436,
    "pidfd_getfd": 438,
    "epoll_pwait2": 441,
}
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2


class Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


def refuse(call, error):
    """Makes the call fail in this process and its children."""

    def step(code, if_true, if_false, value):
        return struct.pack("HBBI", code, if_true, if_false, value)

    code = ctypes.create_string_buffer(
        step(0x20, 0, 0, 0)  # load the call's number
        + step(0x15, 0, 1, CALLS[call])
        + step(0x06, 0, 0, 0x00050000 | error)  # SECCOMP_RET_ERRNO
        + step(0x06, 0, 0, 0x7FFF0000)  # SECCOMP_RET_ALLOW
    )
    libc = ctypes.CDLL(None, use_errno=True)
    program = Filter(4, ctypes.addressof(code))
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


class Machine:
    """One on which a call is refused."""

    def __init__(self, call, error):
        self.options = {"preexec_fn": lambda: refuse(call, getattr(errno, error))}

    def run(self, *words, **more):
        return run([DDPRUN, *words], **self.options, **more)

    def start(self, *words):
        return start([DDPRUN, *words], **self.options)


# glibc 2.34 and newer starts threads by clone3, and does without it only for ENOSYS.
NO_THREADS = ("clone3", "EPERM") if tuple(map(int, platform.libc_ver()[1].split("."))) >= (2, 34) else None


@pytest.fixture(
    params=[(call, error) for call in CALLS for error in ("ENOSYS", "EPERM") if (call, error) != NO_THREADS], ids="-".join
)
def machine(request):
    return Machine(*request.param)


def nothing_left():
    wait_for("the end of all processes", lambda: not [name for _, name in processes_of_this_session() if "far=$$" in name or "sleep 1000" in name])


def test_runs_fail_and_restart_as_elsewhere(machine):
    with open(os.devnull) as file:
        inherited = fcntl.fcntl(file, fcntl.F_DUPFD, 100)
    script = f"[ ! -e /proc/$$/fd/{inherited} ]"
    done = machine.run("--standalone", "--nproc-per-node", 2, "sh", "-c", script, pass_fds=(inherited,))
    os.close(inherited)
    assert done.returncode == 0, "workers have the descriptors of ddprun"
    assert done.stderr == ""

    script = "[ $RANK$DDPRUN_ROUND = 12 ] && exit 7; [ $RANK$DDPRUN_ROUND = 11 ] && kill -9 $$; exec sleep 1000"
    done = machine.run("--standalone", "--nproc-per-node", 2, "--max-restarts", 1, "sh", "-c", script)
    assert done.returncode == 7, done.stderr
    assert re.search(r"restart 1 of 1 as round 2: rank 1 .* was killed by SIGKILL", done.stderr)
    assert re.search(r"run failed: rank 1 .* exited with code 7", done.stderr)
    assert "rank 0 was stopped by ddprun" in done.stderr

    done = machine.run("--standalone", "/nowhere/to/be/found")
    assert done.returncode == 127
    done = machine.run("-H", "localhost:2", "sh", "-c", "exit 3")
    assert done.returncode == 3, done.stderr


FAR = "setsid sh -c 'echo far=$$; exec sleep 1000' & echo near=$$; wait"


@pytest.mark.parametrize("whom", ["ddprun", "keeper", "agent"])
def test_nothing_is_left_behind(machine, whom):
    process = machine.start("--standalone", "sh", "-c", FAR)
    seen = process.stdout.readline() + process.stdout.readline()
    assert "far=" in seen and "near=" in seen
    keeper = int(subprocess.check_output(["ps", "-o", "pid=", "--ppid", str(process.pid)]))
    agent = int(subprocess.check_output(["ps", "-o", "pid=", "--ppid", str(keeper)]))
    os.kill({"ddprun": process.pid, "keeper": keeper, "agent": agent}[whom], signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode in (137, -9)
    nothing_left()


def test_a_signal_ends_the_run(machine):
    process = machine.start("--standalone", "sh", "-c", "trap 'echo saved; exit 0' TERM; echo ready; sleep 1000 & wait")
    assert process.stdout.readline() == "[0] ready\n"
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "saved" in out
    nothing_left()


@pytest.mark.parametrize("error", ["ENOSYS", "EPERM"])
@pytest.mark.parametrize("call", ["pidfd_open", "memfd_create"])
def test_preload_says_what_it_needs(tmp_path, call, error):
    (tmp_path / "job.py").write_text("import sys; sys.exit(5)\n")
    done = Machine(call, error).run("--standalone", "--preload", "json", tmp_path / "job.py", env=clean_environment())
    assert done.returncode == 5, done.stderr
    assert re.search(r"ddprun: the fork server of --preload json .*; workers start without it", done.stderr)
    if call == "pidfd_open":
        assert "needs the system call pidfd_open, which this kernel (before Linux 5.3) or this container refuses" in done.stderr


@pytest.mark.skipif(NO_THREADS is None, reason="built with a newer glibc than Debian 12's, or an older one")
@pytest.mark.parametrize(
    "words",
    [
        ["ddprun", "--standalone", "true"],
        ["ddpctl", "status", "--rdzv-endpoint", "127.0.0.1:1"],
        ["ddprun-rendezvous", "--port", "0"],
    ],
)
def test_a_filter_that_forbids_threads_is_named(words):
    done = run([BIN / words[0], *words[1:]], preexec_fn=lambda: refuse("clone3", errno.EPERM))
    assert done.returncode == 1
    assert re.fullmatch(rf"{words[0]}: cannot start a thread: this container's filter .* forbids the system call clone3; .*\n", done.stderr)


def test_without_clone3_workers_move_to_their_cgroup():
    show = ["--standalone", "cat", "/proc/self/cgroup"]
    if "/ddprun-" not in run([DDPRUN, *show]).stdout:
        pytest.skip("no cgroup can be made here")
    assert re.search(r"/ddprun-[^/]+/round_1\n", Machine("clone3", "ENOSYS").run(*show).stdout)


MOUNTS = {"missing": "mount -t tmpfs tmpfs /sys/fs/cgroup", "read-only": "mount -o remount,bind,ro /sys/fs/cgroup"}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for mounts of its own")
@pytest.mark.parametrize("files", MOUNTS)
def test_cgroup_files_are_not_needed(files):
    prefix = ["unshare", "--mount", "sh", "-c", f'{MOUNTS[files]} || exit 77; exec "$@"', "sh"]
    done = run([*prefix, DDPRUN, "--standalone", "--max-restarts", 1, "sh", "-c", "setsid sleep 1000 & exit $((3 - DDPRUN_ROUND))"])
    if done.returncode == 77:
        pytest.skip("this user may not mount here")
    assert done.returncode == 1 and "restart 1 of 1" in done.stderr
    nothing_left()
