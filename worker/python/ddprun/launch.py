# SPDX-License-Identifier: Apache-2.0
"""Runs a Python function on the workers of a run of ddprun, from a Python program or a notebook. The standard library alone."""

import contextlib
import fcntl
import json
import os
import shutil
import sys
import tempfile
import time

from . import payload
from .launch_process import LaunchProcess
from .programs import NOT_FOUND, find_program

_HERE = os.path.dirname(os.path.abspath(__file__))
_FOLDER = "ddprun-launch-"  # then characters of its own, in $TMPDIR
_LEFT_SECONDS = 60  # a younger folder may be one that its caller has not locked yet


class LaunchError(RuntimeError):
    """The run failed. str(): the verdict's sentence, with the message of the exception that ended the rank.

    exit_code: ddprun's; 128 + N: it was ended by signal N
    verdict: what --verdict-file has (a dict); None: ddprun gave none, as for a flag that is not known
    rank: the first that failed; None: no rank was the cause
    traceback: of the exception that ended that rank; "" if none did"""

    def __init__(self, sentence, exit_code, verdict=None):
        super().__init__(sentence, exit_code, verdict)
        cause = (verdict or {}).get("cause") or {}
        self.sentence, self.exit_code, self.verdict = sentence, exit_code, verdict
        self.rank, self.traceback = cause.get("rank"), cause.get("traceback") or ""

    def __str__(self):
        return self.sentence


class WorkerTraceback(Exception):
    """The cause of a LaunchError, so that Python prints what a worker raised above what launch() raises."""

    def __str__(self):
        return f'\n"""\n{self.args[0]}"""'


def launch(function, args=(), *, nproc_per_node=1, nnodes=1, flags=(), program=None, **named):
    """Calls `function(*args)` in each worker of a run, and returns {rank: result} of the ranks of this node.

        results = ddprun.launch(train, (config,), nproc_per_node=4)

    Flags of ddprun are keywords: max_restarts=3 is --max-restarts=3, standalone=True is --standalone, a list is one flag for each of
    its items, and None leaves a flag out. `flags`: more of them, as one types them. `program`: ddprun's path, where it is neither
    beside this Python nor in PATH. With several nodes call it on each, with rdzv_endpoint= or node_rank= and master_addr=.

    A worker finds its rank in os.environ, as under torchrun. What the workers print goes to sys.stdout and sys.stderr of this
    program. Call it under `if __name__ == "__main__":` in a program that is run as a file: the workers import that file.

    LaunchError: the run failed. pickle.PicklingError: the call cannot be sent. An exception that reaches this thread meanwhile, such
    as KeyboardInterrupt, ends the run, and is raised when no process of it is left."""
    if payload.importing is not None:
        raise RuntimeError(f"ddprun.launch() was called by a worker that imports {payload.importing}; put the call under "
                           '`if __name__ == "__main__":`')
    _check(function, args, flags)
    start = _start_of(program)
    _remove_left_folders()
    folder = tempfile.mkdtemp(prefix=_FOLDER)
    try:
        with _held(folder):
            payload.write_call(folder, function, tuple(args))
            verdict_file = os.path.join(folder, "verdict.json")
            given = {"nnodes": nnodes, "nproc_per_node": nproc_per_node, **named}
            command = [*start, *_words(given), *map(str, flags), f"--verdict-file={verdict_file}"]
            process = LaunchProcess([*command, os.path.join(_HERE, "launched.py"), folder])
            code = process.run()
            return _outcome(folder, code, _read_verdict(verdict_file), process.last_line())
    finally:
        _remove(folder)


def _check(function, args, flags):
    if not callable(function):
        raise TypeError(f"ddprun.launch calls a function, and {function!r} is none; run a script with `ddprun SCRIPT`")
    if not isinstance(args, (tuple, list)):
        raise TypeError(f"ddprun.launch takes the function's arguments as a tuple, and not a value of type {type(args).__name__}; "
                        "give (VALUE,)")
    if isinstance(flags, str):
        raise TypeError(f"ddprun.launch takes flags as a list, and not one text; give {flags.split()!r}")


def _start_of(program):
    if not sys.executable:
        raise RuntimeError("ddprun.launch does not know which Python runs this program (sys.executable is empty); set sys.executable")
    path = program or find_program("ddprun")
    if path is None:
        raise FileNotFoundError(f"{NOT_FOUND}, or name it: program=PATH")
    if not os.access(path, os.X_OK) or os.path.isdir(path):
        raise FileNotFoundError(f"program={str(path)!r} is no program that this user may run; name ddprun's path, or leave it out")
    # Without site's start and without the variables that are meant for the workers' Python.
    return [sys.executable, "-I", "-S", os.path.join(_HERE, "parent_death.py"), str(os.getpid()), os.path.abspath(path)]


def _words(named):
    """Flags of keywords."""
    words = []
    for name, value in named.items():
        flag = "--" + name.replace("_", "-")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is True:
                words.append(flag)
            elif one is not None and one is not False:
                words.append(f"{flag}={one}")
    return words


def _read_verdict(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def _outcome(folder, code, verdict, last_line):
    if code == 0:
        try:
            return payload.read_results(folder, (verdict or {}).get("round"))
        except Exception as error:
            raise LaunchError(f"a result cannot be read: {error}; return what this program can import", code, verdict) from error
    cause = (verdict or {}).get("cause") or {}
    sentence = cause.get("sentence") or (verdict or {}).get("text", "").partition("\n")[0] or last_line or _without_verdict(code)
    message = (cause.get("message") or "").partition("\n")[0]
    failure = LaunchError(sentence if message in sentence else f"{sentence}: {message}", code, verdict)
    raise failure from WorkerTraceback(failure.traceback) if failure.traceback else None


def _without_verdict(code):
    how = f"signal {code - 128} ended it" if code > 128 else "it has printed why"
    return f"ddprun ended with exit code {code}: {how}"


@contextlib.contextmanager
def _held(folder):
    """The folder is that of a process that lives, for _remove_left_folders()."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # a file system without locks, where nobody removes it either
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _remove(folder):
    """Renames first: a ddprun that was killed with its caller's second exception may still write its verdict by the old name."""
    over = f"{folder}.over"
    with contextlib.suppress(OSError):
        os.rename(folder, over)
    shutil.rmtree(over, ignore_errors=True)


def _remove_left_folders():
    """Of this user's callers that were killed."""
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(tempfile.gettempdir())):
            status = entry.stat(follow_symlinks=False) if entry.name.startswith(_FOLDER) else None
            if status and status.st_uid == os.getuid() and time.time() - status.st_mtime > _LEFT_SECONDS:
                with contextlib.suppress(OSError):
                    _remove_if_left(entry.path)


def _remove_if_left(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: its caller lives
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(fd)
