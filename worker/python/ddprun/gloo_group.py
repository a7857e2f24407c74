# SPDX-License-Identifier: Apache-2.0
"""A process group of Gloo whose collectives end when the round does. Needs torch.

Gloo tells a collective that a connection is gone, but not one whose message it was about to write, was writing or reading
(Pair::signalException() of gloo/transport/tcp/pair.cc goes through the operations that wait for the peer, and through no other of
an unbound buffer): that one waits for as long as the group's timeout, and nothing wakes it. Here who waits for a collective
waits for a future of ours instead, which can be failed."""

import atexit
import ctypes
import datetime
import functools
import os
import queue
import threading

import torch
import torch.distributed as dist

_STOP_SECONDS = 1
_RECONFIGURE_SECONDS = 20  # all ranks are there when it begins; less than the agent waits for a rank to leave its round
BACKEND = "ddprun_gloo"  # what c10d calls it
# Not what ProcessGroup itself would pass on: its trampolines hold the interpreter's lock meanwhile, and Gloo's threads need that
# lock under one of their own. Versions of torch name them differently.
_COLLECTIVES = (
    "_allgather_base _reduce_scatter_base all_gather_single all_gather_single_coalesced all_to_all_single allgather"
    " allgather_coalesced allreduce allreduce_coalesced alltoall alltoall_base barrier broadcast gather gather_into_tensor"
    " gather_single recv recv_anysource reduce reduce_scatter reduce_scatter_single reduce_scatter_single_coalesced scatter send"
).split()

CAN_RECONFIGURE = hasattr(dist.ProcessGroupGloo, "reconfigure")

_changed = threading.Condition()
_groups = []  # of this round, but those with a collective that never ends
_under_way = {}  # the future of each collective that has not ended: its group
_kept = None  # the default group of the round before, for the next one


def register():
    """Makes BACKEND known to torch.distributed, whose get_backend() calls it "gloo": frameworks leave out what Gloo cannot do where it
    says that."""
    if hasattr(dist.Backend, BACKEND.upper()):
        return
    dist.Backend.register_backend(BACKEND, _make_group, extended_api=True, devices=["cpu"])
    name_of = dist.get_backend

    @functools.wraps(name_of)
    def get_backend(group=None):
        name = name_of(group)
        return dist.Backend(dist.Backend.GLOO) if name == BACKEND else name

    dist.get_backend = get_backend


def forget_groups():
    """Those of earlier rounds, whose threads have ended what they did; the default group is kept if it can be reconfigured. A group's
    destructor joins its threads, maybe under the interpreter's lock, which such a thread needs once more after a collective is told to
    have ended: so nobody frees one at once."""
    global _kept
    with _changed:
        ended = _groups[:]
        _groups.clear()
    _kept = next((group for group in ended if group._store), None)
    for group in ended:
        if group is not _kept:
            _stop_waiter(group)
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(group._gloo))


def end_collectives(reason, timeout):
    """No group begins another collective. Those that have not ended by themselves within so many seconds fail: who waits for them
    gets a RuntimeError. From any thread; the connections have been shut."""
    with _changed:
        for group in _groups:
            group._over = reason
        _changed.wait_for(lambda: not _under_way, timeout)
        left = dict(_under_way)
        never_end = list(left.values())  # nor would their destructors
        _groups[:] = [group for group in _groups if group not in never_end]
    for future in left:
        _end(future, RuntimeError(reason))


def _make_group(options, _):
    """For torch.distributed; `options.global_ranks_in_group` is empty for the default group."""
    global _kept
    where = options.store, options.group_rank, options.group_size
    if options.global_ranks_in_group or not CAN_RECONFIGURE:
        group = _Group(dist.ProcessGroupGloo(*where, timeout=options.timeout), *where[1:])
    else:
        group, _kept = _kept or _reconfigurable(*where, options.timeout), None
        group._enter(*where)
    with _changed:
        _groups.append(group)
    return group


def _reconfigurable(store, rank, size, timeout):
    round_store = _RoundStore(store)
    return _Group(dist.ProcessGroupGloo(round_store, rank, size, timeout=timeout, enable_reconfigure=True), rank, size, round_store)


class _Group(dist.ProcessGroup):
    def __init__(self, gloo, rank, size, store=None):
        super().__init__(rank, size)
        self._over = None  # why no more collective may begin
        self._gloo = gloo
        self._store = store  # of the current round, if the group can be reconfigured
        self._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        self._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, self._gloo)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._gloo))  # which nobody drops as the process ends
        # Not by callbacks: on Gloo's threads they need the interpreter, which may be ending.
        self._begun = queue.SimpleQueue()
        self._waiter = threading.Thread(target=_wait_for_each, args=(self._begun,), daemon=True)
        self._waiter.start()

    def _enter(self, store, rank, size):
        """Connects the group with the ranks of this round: RuntimeError where that fails."""
        self._store.current = store
        store.set(f"handle/{rank}", self._gloo.get_reconfigure_handle())
        options = dist.distributed_c10d.ReconfigureOptions()
        options.uuid = int(os.environ.get("DDPRUN_ROUND") or 0)
        options.handles = [store.get(f"handle/{other}").decode() for other in range(size)]
        options.timeout = datetime.timedelta(seconds=_RECONFIGURE_SECONDS)
        self._gloo.reconfigure(options)
        self._over = None


class _RoundStore(dist.Store):
    """Passes all on to the store of the current round: each has its own, and a group that outlives its round only the one that it was
    made with."""

    def __init__(self, current):
        super().__init__()
        self.current = current


def _of_current(name):
    def call(store, *arguments):
        return getattr(store.current, name)(*arguments)

    return call


for _name in "add append check compare_set delete_key get has_extended_api multi_get multi_set num_keys set wait".split():
    setattr(_RoundStore, _name, _of_current(_name))


class _Work(dist.Work):
    """Of a future: wait() raises its error, which c10d's own work of a future does not."""

    def __init__(self, ended, result):
        super().__init__()
        self._ended, self._result = ended, result

    def wait(self, timeout=datetime.timedelta(0)):
        if timeout > datetime.timedelta(0):
            with _changed:
                if not _changed.wait_for(lambda: self._ended not in _under_way, timeout.total_seconds()):
                    raise RuntimeError(f"gloo: the collective did not end within {timeout.total_seconds():g} s")
        self._result.wait()
        return True

    def get_future(self):
        return self._result

    def result(self):
        return self._result.wait()

    def is_completed(self):
        return self._result.done()

    def is_success(self):
        return self._result.done() and self.exception() is None

    def exception(self):
        try:
            self._result.value()
        except Exception as error:
            return error
        return None

    def synchronize(self):
        self.wait()


def _collective(name):
    def call(group, *arguments, **options):
        ended = torch.futures.Future()
        result = ended.then(_result)
        with _changed:
            if group._over:
                raise RuntimeError(group._over)
            _under_way[ended] = group
        try:
            work = getattr(group._gloo, name)(*arguments, **options)
        except BaseException:
            _end(ended, None)
            raise
        try:
            future = work.get_future()
        except RuntimeError:  # it has none (send, recv, reduce_scatter): it ends with the connections alone
            _end(ended, None)
            return work
        group._begun.put((ended, future))
        return _Work(ended, result)

    return call


for _name in filter(functools.partial(hasattr, dist.ProcessGroupGloo), _COLLECTIVES):
    setattr(_Group, _name, _collective(_name))


def _wait_for_each(begun):
    while (one := begun.get()) is not None:
        ended, future = one
        try:
            outcome = future.wait()
        except Exception as error:
            outcome = error
        _end(ended, outcome)
        del one, ended, future, outcome


@atexit.register
def _stop_waiters():
    """A thread that is within torch when the interpreter ends would abort the process."""
    with _changed:
        groups = _groups[:]
    for group in groups + [_kept] * bool(_kept):
        _stop_waiter(group)


def _stop_waiter(group):
    group._begun.put(None)
    group._waiter.join(_STOP_SECONDS)


def _end(ended, outcome):
    with _changed:
        if _under_way.pop(ended, None) is None:
            return
        _changed.notify_all()
    ended.set_result(outcome)


def _result(ended):
    """An exception raised here fails the future in C++ too, which Future.set_exception() does not."""
    outcome = ended.value()
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
