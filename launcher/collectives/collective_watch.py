# SPDX-License-Identifier: Apache-2.0
"""Reports where a Python worker is among torch.distributed's collectives (proto/progress_message.h: WAITS, LAST), for the
verdict of a hang or of a collective that timed out. The program needs no change and is not slowed down.

Python imports this file as its `sitecustomize`, just before it runs the program; fork_server.py runs it in forked workers.
Nothing happens until the program makes its first process group. From then on a thread looks once a second at the counters of
c10d's flight recorder, and reads its entries only when they stand still.
"""

import os
import sys
import time

VARIABLE = "DDPRUN_COLLECTIVE_WATCH"
MODULE = "torch.distributed.distributed_c10d"
LOOK_SECONDS = 1
# Entries of ProcessGroupNCCL's own recorder are read with CUDA calls, which could disturb a program that records a CUDA graph:
# not while it moves.
NCCL_STALL_SECONDS = 10
RETIRE_LOOKS, RETIRE_SECONDS = 5, 0.01
HISTORY, DONE_MAX, BYTES_MAX = 6, 32, 4096  # of a group; kCollectivesDoneMax, kProgressMessageBytesMax
TYPES = {
    "Float": ("float32", 4),
    "Double": ("float64", 8),
    "Half": ("float16", 2),
    "BFloat16": ("bfloat16", 2),
    "Long": ("int64", 8),
    "Int": ("int32", 4),
    "Short": ("int16", 2),
    "Byte": ("uint8", 1),
    "Char": ("int8", 1),
    "Bool": ("bool", 1),
}


class Place:
    """Where this process is, of the entries of one or more recorders (version 2 of torch's format)."""

    def __init__(self, groups=()):
        self.entries = {}
        self.waits = None  # the oldest entry that is not done
        self.done = {group: [] for group in groups}  # of each group the entries, in their order

    def add(self, entry):
        self.entries[key_of(entry)] = entry
        if not is_done(entry):
            if self.waits is None or entry["time_created_ns"] < self.waits["time_created_ns"]:
                self.waits = entry
        elif not entry["is_p2p"]:
            self.done.setdefault(entry["process_group"][0], []).append(entry)

    def newest(self):
        return max(self.entries.values(), key=lambda entry: entry["time_created_ns"], default=None)

    def fail(self, before):
        """Work that failed looks like work that is done. It is what was waited for at the look before, or else the newest."""
        newest = self.newest()
        waited = key_of(before.waits) if before and before.waits else None
        if waited and before.waits is before.newest() and newest and key_of(newest) != waited:
            waited = None  # it was done, and another one was begun
        self.waits = self.entries.get(waited) or self.waits or newest
        if self.waits is not None and not self.waits["is_p2p"]:
            done = self.done.get(self.waits["process_group"][0], [])
            done[:] = [entry for entry in done if entry["collective_seq_id"] < self.waits["collective_seq_id"]]

    def message(self):
        lines = ["WAITS=" + (words_of(self.waits) if self.waits else "")]
        for group, done in sorted(self.done.items()):
            lines += [f"LAST={words_of(entry)}" for entry in done[-HISTORY:]] or [f"LAST=0 - {word(group)}"]
        return ("\n".join(lines[: 1 + DONE_MAX]) + "\n").encode()[:BYTES_MAX]


def key_of(entry):
    return entry["process_group"][0], entry["collective_seq_id"], entry["is_p2p"]


def word(text):
    return "_".join(str(text).split()) or "-"


def name_of(entry):
    return word(entry["profiling_name"].partition(":")[2] or entry["profiling_name"])


def is_done(entry):
    """Gloo's entries, and those of other backends that do not report an end, say only that they are retired; NCCL's are retired
    too when their time is over, those of nccl2 not."""
    if entry["state"] == "completed":
        return True
    return entry["retired"] and not entry["profiling_name"].startswith("nccl:")


def words_of(entry):
    number = 0 if entry["is_p2p"] else entry["collective_seq_id"]
    size, name = "-", "-"
    if entry["input_dtypes"]:
        name, width = TYPES.get(entry["input_dtypes"][0], (word(entry["input_dtypes"][0]), 0))
        if width:
            size = 0
            for shape in entry["input_sizes"]:
                elements = width
                for length in shape:
                    elements *= length
                size += elements
    return f"{number} {name_of(entry)} {size} {name} {word(entry['process_group'][0])}"


def failed_in_a_collective():
    """The exception that ends this process comes from c10d or a library below it."""
    error = getattr(sys, "last_value", None)
    if error is None:
        return False
    text = str(error).lower()
    if "gloo" in text or "nccl" in text or "process group" in text or "processgroup" in text:
        return True
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and "torch/distributed/" in trace.tb_frame.f_code.co_filename


class Recorders:
    """c10d's flight recorders, from which a place is read. Gloo's groups write to one, those of the first ProcessGroupNCCL to
    another. From PyTorch 2.15 on c10d itself records what other backends do, of which nccl2 is one: in one recorder for each
    backend, by the name that the backend gives itself ("nccl2", though the group was made with "nccl")."""

    def __init__(self, c10d, extension):
        self.c10d = c10d
        self.general = getattr(extension, "_dump_fr_trace_json", None)  # older versions have none of Gloo
        self.nccl = getattr(extension, "_dump_nccl_trace_json", None)
        self.backends = []
        self.find()

    def any(self):
        return self.general is not None or self.nccl is not None

    def find(self):
        """The backends of groups that were made since."""
        for group in list(getattr(self.c10d._world, "pg_flight_recorder_hooks", ())):
            for device in group._device_types:
                try:
                    name = group._get_backend(device).name().replace(":", "_")  # as the recorder's name is made
                except Exception:
                    continue  # a backend without a name is not recorded
                if name not in ("gloo", *self.backends) and "backend:" in (self.general.__doc__ or ""):
                    self.backends.append(name)

    def counters(self):
        return self.dumps(False, with_nccl=True)

    def entries(self, with_nccl):
        return self.dumps(True, with_nccl)

    def dumps(self, with_entries, with_nccl):
        dumps = [self.general(with_entries, False)] if self.general else []
        dumps += [self.general(with_entries, False, name) for name in self.backends]
        if self.nccl and with_nccl:
            dumps.append(self.nccl(with_entries, False))
        return dumps


class Watch:
    def __init__(self, c10d):
        # torch has imported all of them.
        import atexit
        import json
        import socket
        import threading

        self.c10d, self.parse, self.timeout = c10d, json.loads, socket.timeout
        self.recorders = Recorders(c10d, sys.modules["torch._C._distributed_c10d"])
        self.path = os.environ.get("DDPRUN_NOTIFY_SOCKET")
        if not self.recorders.any() or not self.path:
            return
        self.out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.out.setblocking(False)
        self.questions = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.questions.settimeout(LOOK_SECONDS)
        own_path = self.path + ".places"  # the agent asks there, when another rank has failed
        if os.path.exists(own_path):
            os.unlink(own_path)
        self.questions.bind(own_path)
        self.process = os.getpid()
        self.begin()
        self.seen = None  # the place that was sent last, while the counters stand still
        self.ended = threading.Event()
        self.lock = threading.Lock()  # nothing is sent after the last message
        atexit.register(self.at_exit)
        import _thread

        _thread.start_new_thread(self.run, ())

    def begin(self):
        """What is older belongs to groups that this process has left."""
        self.begun_ns = time.time_ns()

    def run(self):
        before, still = None, 0
        while not self.ended.is_set():
            try:
                asked = self.is_asked()
                counters = self.recorders.counters()
                still = still + 1 if counters == before else 0
                before = counters
                if asked or still in (1, NCCL_STALL_SECONDS):
                    # One that is done may look as if others had been begun while it goes on.
                    self.seen = self.settled(lambda place: place.waits is place.newest(), with_nccl=still > 1)
                    self.send(self.seen.message())
                elif still == 0 and self.seen:
                    self.seen = None
                    self.send(b"WAITS=-\n")
            except Exception:
                return  # another version of torch: the verdict is without these words

    def is_asked(self):
        """False: a second has passed."""
        try:
            return bool(self.questions.recv(1))
        except self.timeout:
            return False

    def place(self, with_nccl):
        self.recorders.find()
        place = Place(str(group) for group in list(self.c10d._world.pg_names.values()))
        for dump in self.recorders.entries(with_nccl):
            for entry in self.parse(dump).get("entries", ()):  # absent: there are none
                if entry["time_created_ns"] >= self.begun_ns:
                    place.add(entry)
        return place

    def settled(self, is_settled, with_nccl):
        """What has just ended is retired a moment later: looks again for as long."""
        place = self.place(with_nccl)
        for _ in range(RETIRE_LOOKS):
            if place.waits is None or is_settled(place):
                break
            time.sleep(RETIRE_SECONDS)
            place = self.place(with_nccl)
        return place

    def send(self, message, last=False):
        with self.lock:
            if self.ended.is_set() and not last:
                return
            try:
                self.out.sendto(message, self.path)
            except OSError:
                pass  # the agent is busy

    def at_exit(self):
        if os.getpid() != self.process:
            return  # a fork of the program's
        self.ended.set()
        try:
            failed = failed_in_a_collective()
            place = self.settled(lambda _: failed, with_nccl=failed)
            if failed:
                place.fail(self.seen)
            else:
                place.waits = None
            self.send(place.message(), last=True)
        except Exception:
            pass


def watch_groups(c10d):
    """The thread begins with the first process group: a program without one keeps a single thread, and may fork."""
    original = getattr(c10d, "_update_default_pg", None)
    if original is None:
        return
    watches = []

    def update_default_pg(group):
        original(group)
        if group is None:
            return
        try:
            if watches:
                watches[0].begin()
            else:
                watches.append(Watch(c10d))
        except Exception:
            pass  # as a version of torch without a recorder

    c10d._update_default_pg = update_default_pg


class AfterImport:
    """Stands in sys.meta_path until the module is imported."""

    __module__ = "collective_watch"  # not "sitecustomize", which the user's is

    def find_spec(self, name, path=None, target=None):
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        specs = (finder.find_spec(name, path, target) for finder in sys.meta_path)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                watch_groups(module)

            spec.loader.exec_module = exec_module
        return spec


def hide():
    """The program finds the path and the variables that it has without this file."""
    folder = os.environ.pop(VARIABLE)
    others = [path for path in os.environ.pop("PYTHONPATH", "").split(":") if path != folder]
    if any(others):
        os.environ["PYTHONPATH"] = ":".join(others)
    if folder in sys.path:
        sys.path.remove(folder)
        sys.path_importer_cache.pop(folder, None)


hide()
if MODULE in sys.modules:
    watch_groups(sys.modules[MODULE])
else:
    sys.meta_path.insert(0, AfterImport())
if __name__ == "sitecustomize":
    del sys.modules["sitecustomize"]
    import sitecustomize  # noqa: F401  the user's; Python ignores that there is none
