# SPDX-License-Identifier: Apache-2.0
"""Becomes a program that receives SIGTERM when the process that started it ends, however it does:

    parent_death.py PID PROGRAM ARGS...     PID: of that process

A program of its own, because subprocess's preexec_fn may deadlock in a process that has threads, as Jupyter's kernel. The kernel sends
the signal when the thread that started this ends: launch() keeps that thread until the run is over."""

import contextlib
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def main():
    parent, command = int(sys.argv[1]), sys.argv[2:]
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
        signal.signal(number, signal.SIG_DFL)
    with contextlib.suppress(ImportError, OSError, AttributeError):  # a Python without ctypes: the run may outlive its caller
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)  # it has ended before
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
