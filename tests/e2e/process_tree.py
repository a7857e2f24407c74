# SPDX-License-Identifier: Apache-2.0
"""Processes, their children, and the ports that this machine listens at, as the kernel has them."""

import contextlib
import os
import pathlib
import signal


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def listening(ports):
    lines = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
    return ["LISTEN" for line in lines if line.split()[3] == "0A" and int(line.split()[1].split(":")[1], 16) in ports]


def tree_of(pid):
    """The process and all below it that live now."""
    pids = [pid]
    for one in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for task in pathlib.Path(f"/proc/{one}/task").glob("*/children"):
                pids += map(int, task.read_text().split())
    return pids


def signal_all(pids, number):
    """To those of them that live."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_tree(process):
    """SIGKILL to all of it, as when its machine is gone: none has the time to see another one's end."""
    signal_all(tree_of(process.pid), signal.SIGSTOP)
    signal_all(tree_of(process.pid), signal.SIGKILL)
    process.communicate()
