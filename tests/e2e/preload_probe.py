# SPDX-License-Identifier: Apache-2.0
"""What a Python worker finds, as JSON in FOLDER/RANK.json: `preload_probe.py FOLDER ARGS...`; parity_probe.py has what
the kernel keeps of a process, this one what Python does. It comes with PYTHONPATH naming its folder."""

import sys

BEGIN = {  # before anything else is imported
    "modules": sorted(sys.modules),
    "main": {name: type(value).__name__ for name, value in globals().items()},
    "frames": [],
}
_frame = sys._getframe()
while _frame is not None:
    BEGIN["frames"].append([_frame.f_code.co_filename, _frame.f_code.co_name])
    _frame = _frame.f_back

import atexit
import gc
import json
import locale
import os
import pathlib
import pickle
import random
import signal
import subprocess
import threading
import warnings

import parity_probe


class Pickled:
    """Of __main__."""


def stream(one):
    return {
        "type": type(one.buffer).__name__,
        "fileno": one.fileno(),
        "encoding": one.encoding,
        "errors": one.errors,
        "line_buffering": one.line_buffering,
        "write_through": one.write_through,
        "isatty": one.isatty(),
        "seekable": one.seekable(),
        "mode": one.mode,
        "name": one.name,
    }


def python():
    names = (
        "argv orig_argv executable prefix base_prefix exec_prefix warnoptions dont_write_bytecode path flags version"
    ).split()
    return {
        **{name: repr(getattr(sys, name)) for name in names},
        "hooks": [len(sys.path_hooks), [repr(finder) for finder in sys.meta_path]],
        "excepthook": [sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__],
        "interned": [sys.getrecursionlimit(), sys.getswitchinterval(), sys.gettrace(), sys.getprofile()],
        "last": hasattr(sys, "last_value"),
        "streams": [stream(one) for one in (sys.stdin, sys.stdout, sys.stderr)],
        "signals": {number: repr(signal.getsignal(number)) for number in sorted(signal.valid_signals())},
        "threads": [thread.name for thread in threading.enumerate()],
        "main_thread": threading.main_thread().ident == threading.get_ident(),
        "warnings": [repr(one) for one in warnings.filters],
        "locale": locale.setlocale(locale.LC_ALL),
        "gc": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()],
        "atexit": atexit._ncallbacks(),
        "sitecustomize": getattr(sys.modules.get("sitecustomize"), "__file__", None),
        "caches": sorted(path for path in sys.path_importer_cache if "ddprun-" in path),
        "spec": [repr(__spec__), repr(type(__loader__)), repr(__package__), repr(globals().get("__cached__"))],
        "doc": __doc__,
        "pickled": pickle.dumps(Pickled()).hex(),
    }


def kernel():
    folder = pathlib.Path("/proc/self")
    me = os.getpid()
    try:
        policies = sorted({line.split()[1] for line in (folder / "numa_maps").read_text().splitlines()})
    except OSError:
        policies = None
    said = subprocess.run(
        [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"],
        check=True, stdout=subprocess.PIPE,
    ).stdout  # fmt: skip
    return {
        "cmdline": (folder / "cmdline").read_bytes().decode().split("\0"),
        "comm": (folder / "comm").read_text(),
        "tasks": len(os.listdir("/proc/self/task")),
        "children": (folder / "task" / str(me) / "children").read_text(),
        "memory_policies": policies,
        "environment_is_that_of_c": json.loads(said) == dict(os.environ),
    }


def main():
    fds = parity_probe.descriptors()
    folder = pathlib.Path(sys.argv[1])
    found = {**BEGIN, "python": python(), "kernel": kernel()}
    found["process"] = {**parity_probe.process(), "descriptors": {n: k for n, k in fds.items() if k != "/proc"}}
    found["environment"] = dict(os.environ)
    found["random"] = [random.random()]
    if "numpy" in sys.modules:
        found["random"].append(float(sys.modules["numpy"].random.random()))
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
