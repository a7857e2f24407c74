# SPDX-License-Identifier: Apache-2.0
"""Hears that a machine of the run will be taken away (preemption). The datagrams are described in launcher/processes/notice_message.h."""

import os
import socket
import threading
import traceback

_SEND_SECONDS = 10  # to an agent that reads its socket at once, as long as it lives
_lock = threading.Lock()
_listener = None


def on_notice(callback):
    """`callback(seconds)` is called when a machine of the run will be taken away in so many seconds: on every rank, whichever
    machine it is, once for each notice, on a thread of this package. A notice that came before this call counts too, with the time
    that is left of it; one with an earlier deadline is another notice. What it raises is printed, and ends nothing.

    A rank that saves needs its peers at the same step: let the callback set a flag, and exchange the flag at each step
    (worker/python/examples/save_on_notice.py).

    Returns False where nothing will be heard: without ddprun, or where another process of this worker hears already."""
    global _listener
    notify = os.environ.get("DDPRUN_NOTIFY_SOCKET")
    if not notify:
        return False
    with _lock:
        if _listener is None:
            try:
                _listener = _Listener(notify)
            except OSError:
                return False  # no descriptor, or the path is taken
        return _listener.add(callback)


def notice_saved():
    """This rank has saved for the last notice that it heard, and needs no more of its time. Once all ranks have said so, the node that
    will be taken away is drained; without that, when half of the time is over. The others go on, in place or from the checkpoint."""
    if _listener is not None:
        _listener.tell_saved()


class _Listener:
    def __init__(self, notify):
        self._notify = notify
        self._pid = os.getpid()
        self._number = 0  # of the last notice
        self._callbacks = []  # [callback, the number of the last notice that it was called for]
        self._socket = _bind(notify + ".notices")
        threading.Thread(target=self._read, name="ddprun-notices", daemon=True).start()

    def add(self, callback):
        if os.getpid() != self._pid:
            return False  # a fork has no reading thread
        self._callbacks.append([callback, 0])
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
                out.settimeout(_SEND_SECONDS)
                out.sendto(b"NOTICES=1\n", self._notify)  # the agent answers with the notice of before
        except OSError:
            return False  # the agent has ended, or hangs
        return True

    def tell_saved(self):
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
                out.settimeout(_SEND_SECONDS)
                out.sendto(b"SAVED=%d\n" % self._number, self._notify)
        except OSError:
            pass  # the agent has ended, or hangs

    def _read(self):
        while True:
            lines = self._socket.recv(4096).decode(errors="replace").splitlines()
            words = dict(line.split("=", 1) for line in lines if "=" in line)
            try:
                number, seconds = int(words["NOTICE"]), float(words["SECONDS"])
            except (KeyError, ValueError):
                continue
            self._number = number
            for entry in list(self._callbacks):
                if entry[1] < number:
                    entry[1] = number
                    _call(entry[0], seconds)


def _call(callback, seconds):
    try:
        callback(seconds)
    except Exception:
        traceback.print_exc()


def _bind(path):
    """A datagram socket there, in place of one that nobody reads any more."""
    one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        if os.path.exists(path):
            try:
                one.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)
            else:
                raise FileExistsError(path)
        one.bind(path)
        os.chmod(path, 0o600)
    except OSError:
        one.close()
        raise
    return one
