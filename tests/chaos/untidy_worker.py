# SPDX-License-Identifier: Apache-2.0
"""A worker that leaves all kinds of processes behind, tells who they are, and waits for its end.

    untidy_worker.py SOCKET SHAPE...

Each SHAPE is one more process: child, stopped, setsid, double (forked twice: its parent is gone), daemon (both), deaf
(ignores SIGTERM and SIGHUP), chain (a child with a child with a child). `self-stopped` and `self-deaf` are about the worker
itself. Once all are there, SOCKET is sent one byte, with which the kernel says from whom it is.
"""

import os
import signal
import socket
import sys


def wait_for_ever():
    while True:
        signal.pause()


def be_deaf():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def child(body):
    """Forks; the child says that it is as it should be, and the parent waits for that."""
    ready, done = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ready)
        try:
            body(done)
        finally:
            os._exit(1)
    os.close(done)
    os.read(ready, 1)
    os.close(ready)
    return pid


def say(done):
    os.write(done, b".")
    os.close(done)


def rest(done):
    say(done)
    wait_for_ever()


def stop(done):
    say(done)
    os.kill(os.getpid(), signal.SIGSTOP)
    wait_for_ever()


def with_session(done):
    os.setsid()
    rest(done)


def with_dead_parent(body):
    def middle(done):
        if os.fork() == 0:
            body(done)
        os._exit(0)

    pid = child(middle)
    os.waitpid(pid, 0)


def deaf(done):
    be_deaf()
    rest(done)


def chain(done):
    child(lambda inner: (child(rest), rest(inner)))
    rest(done)


SHAPES = {
    "child": lambda: child(rest),
    "stopped": lambda: child(stop),
    "setsid": lambda: child(with_session),
    "double": lambda: with_dead_parent(rest),
    "daemon": lambda: with_dead_parent(with_session),
    "deaf": lambda: child(deaf),
    "chain": lambda: child(chain),
}


def main():
    path, *shapes = sys.argv[1:]
    for shape in shapes:
        if shape in SHAPES:
            SHAPES[shape]()
    if "self-deaf" in shapes:
        be_deaf()
    socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b".", path)
    if "self-stopped" in shapes:
        os.kill(os.getpid(), signal.SIGSTOP)
    wait_for_ever()


main()
