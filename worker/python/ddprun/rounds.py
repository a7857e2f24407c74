# SPDX-License-Identifier: Apache-2.0
"""A training loop that outlives the death of a rank: the other ranks keep their process, model and data, and go on in a new
process group after the latest complete step. Needs torch."""

import contextlib
import os
import socket
import stat
import sys
import threading
import time

from .round_client import Rounds
from .shared_state import send_state

_SHUT_SECONDS = 0.02
_BROKEN_SECONDS = 0.3  # within which the agent says that the round is over, when a collective has failed
_SHUT_COLLECTIVE_SECONDS = 0.5  # within which a collective ends whose connections have been shut


class RoundBroken(RuntimeError):
    """The round is over: a rank has died, or left. Raised by Round.end_step()."""


def rounds(*state, step=0, backend=None, _after_group=False, _keeps_group=False, **arguments):
    """Gives a process group for each round; ends when the loop's body has come to its end on all ranks.

        for round in ddprun.rounds(model, optimizer, backend="gloo", step=first):
            with round:
                ddp = round.ddp(model)
                while round.step < steps:
                    optimizer.zero_grad()
                    ...forward, backward, optimizer.step()...
                    round.end_step()

    `state`: what a process that comes in for a dead one receives, and a rank whose last step was not complete: objects with
    state_dict() and load_state_dict(), the same on all ranks. Modules are those under DistributedDataParallel, which Round.ddp()
    keeps; one that the body makes itself is made anew in each round. `step`: how many steps are done, of a checkpoint. `backend`, `arguments`: of init_process_group().

    A peer's death ends the `with` block by an exception that goes no further; the body begins again in the next round. Its own
    exceptions leave the loop as ever. With --spares a process waits here, without a rank, until it takes a dead one's place: what
    is before the loop must not ask for one. Without ddprun there is one round, and nothing is kept.

    Main thread only. With NCCL no process is kept: the host counts steps ahead of the device, whose gradients a peer's death
    keeps from coming, and only TCP connections can be shut from here. All processes end and start again then, at `step`."""
    can_stay = not _may_use_nccl(backend)
    client = Rounds(on_broken=lambda: current._end_collectives())
    current = Round(client, _Connections(), state, step, can_stay, _after_group)
    is_parked = os.environ.pop("DDPRUN_PARKED", "") == "1"
    if can_stay or is_parked:
        if client.keep() and can_stay:
            backend = current._failing_gloo(backend)
    elif client.has_agent and os.environ.get("RANK") == "0":
        print("ddprun.rounds: with NCCL the death of a rank ends all ranks, and --max-restarts starts them again", file=sys.stderr)
    if is_parked:
        os.environ.update(client.wait_round())
    while True:
        if current._join(backend, arguments):
            try:
                yield current
            finally:
                if current._state_of_block == "done" and not (_after_group or _keeps_group):
                    current._destroy_groups()
            if current._state_of_block == "done":
                return
            if current._state_of_block != "left":
                current._destroy_groups()  # Gloo's threads may abort a Python that ends before them
                raise RuntimeError("the body of the loop over ddprun.rounds() must be within `with round:`")
        os.environ.update(client.wait_round())


class Round:
    """One process group. `step`: the number of complete steps; `rank`, `world_size`: of this round."""

    def __init__(self, client, connections, state, step, can_stay=True, after_group=False):
        self.step = step
        self.rank = self.world_size = None
        self._client, self._connections, self._state = client, connections, state
        self._can_stay = can_stay  # in its process, when the round is over
        self._after_group = after_group  # a process makes a group of its framework's before its first round
        self._went_on = False  # has been in a round before: its state counts for more than a new process's of the same step
        self._state_of_block = None  # "done" or "left" when it has ended
        self._gloo_group = None  # the module, where this process is kept
        self._buffers = []  # (buffer, its value after the latest complete step)
        self._wrapped = {}  # what ddp() has made, by id() of the module
        self._is_synced = False  # this rank's parameters have been made those of the other ranks
        self._is_common = False  # the same of all ranks of this round

    def ddp(self, module, **arguments):
        """DistributedDataParallel(module, **arguments): the same object in each round, so that compiled graphs and hooks stay. All
        ranks call it in the same order. With static_graph=True it is made anew in each round."""
        from torch.nn.parallel import DistributedDataParallel

        if self._is_common and not arguments.get("static_graph"):
            made = self._wrapped.get(id(module)) or DistributedDataParallel(module, **{**arguments, "init_sync": False})
            _begin_anew(made)
        else:
            made = DistributedDataParallel(module, **arguments)
        self._wrapped[id(module)] = made
        self._is_synced = True
        return made

    def end_step(self):
        """The step is complete: parameters, optimizer and all other state are those after it."""
        self.count_to(self.step + 1)
        self._raise_if_over()

    def count_to(self, step):
        """end_step() of a framework whose loop asks nobody: the next collective fails where the round is over."""
        self.step = step
        self._is_synced = True
        self._copy_buffers()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        import torch.distributed as dist

        if error is None:
            try:
                dist.barrier()  # a rank that has ended could not give its state to another one
            except Exception as failed:
                error = failed
                if not self._leave(failed):
                    raise
        elif not isinstance(error, Exception) or not self._leave(error):
            return False
        self._state_of_block = "done" if error is None else "left"
        return True

    def _join(self, backend, arguments):
        """False: this round is over before it has begun."""
        import torch.distributed as dist

        self._state_of_block = None
        try:
            with self._connections.being_made():
                self._raise_if_over()
                if self._gloo_group:
                    self._gloo_group.forget_groups()
                more = self._replace_group(backend) if self._after_group else {}
                dist.init_process_group(backend, **arguments, **more)
            self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
            self.step, self._is_common = send_state(self._state, self.step, self._went_on, self._is_synced)
        except Exception as error:
            if not self._leave(error):
                raise
            return False
        self._went_on = True
        self._copy_buffers()
        return True

    def _replace_group(self, backend):
        """The frameworks' process group, which a new process has made before its first round and the others make here."""
        import torch.distributed as dist

        if not dist.is_initialized():
            dist.init_process_group("gloo" if self._gloo_group else backend)
        dist.barrier()  # a rank that is still connecting would meet the end of this group
        store = dist.PrefixStore("ddprun", dist.distributed_c10d._get_default_store())
        place = {"store": store, "rank": dist.get_rank(), "world_size": dist.get_world_size()}
        self._destroy_groups()
        return place

    def _raise_if_over(self):
        if self._client.kept and self._client.broken():
            raise RoundBroken(f"round {self._client.round} is over")

    def _leave(self, error):
        """False: the error is this program's own."""
        if not self._client.kept or not self._can_stay:
            return False
        broken = self._client.broken(_BROKEN_SECONDS)
        if not broken and not _is_of_communication(error):
            return False
        self._end_collectives()
        self._destroy_groups()
        for buffer, value in self._buffers:
            buffer.copy_(value)
        self._client.left("" if broken else str(error))
        return True

    def _failing_gloo(self, backend):
        """The name of what takes Gloo's place."""
        from . import gloo_group

        gloo_group.register()
        self._gloo_group = gloo_group
        return gloo_group.BACKEND if str(backend or "gloo").lower() in ("gloo", "cpu:gloo") else backend

    def _end_collectives(self):
        """On any thread."""
        self._connections.shut()
        if self._gloo_group:
            self._gloo_group.end_collectives(f"round {self._client.round} is over", _SHUT_COLLECTIVE_SECONDS)

    def _destroy_groups(self):
        import torch.distributed as dist

        with contextlib.suppress(Exception):  # there may be none, or half of one
            dist.destroy_process_group()

    def _copy_buffers(self):
        """What forward changes (batch norm's statistics) would count twice where a step is made again."""
        buffers = [buffer for part in self._state if hasattr(part, "buffers") for buffer in part.buffers()]
        self._buffers = [(buffer, buffer.detach().clone()) for buffer in buffers]


def _begin_anew(ddp):
    """After a step that was not completed, in a group of maybe another size, beside ranks whose `ddp` is new: the gradients are put
    into buckets in the same order everywhere, until the second step brings the order of that step, as it does after a start."""
    import torch.distributed as dist

    ddp._update_process_group(dist.group.WORLD)
    ddp.reducer._push_all_rebuilt_params()
    ddp.reducer._rebuild_buckets()
    ddp.reducer._reset_state()


def _may_use_nccl(backend):
    """`backend` is a name, one for each device ("cpu:gloo,cuda:nccl"), or None: NCCL for GPUs where there are any."""
    import torch

    return torch.cuda.is_available() if backend is None else "nccl" in str(backend).lower()


def _is_of_communication(error):
    import torch.distributed as dist

    text = str(error).lower()
    return isinstance(error, dist.DistError) or any(word in text for word in ("gloo", "nccl", "connection"))


class _Connections:
    """The TCP connections of the process groups. A collective of Gloo's cannot be told to give up: it ends with them, mostly
    (gloo_group.py)."""

    def __init__(self):
        self._lock = threading.Lock()
        self._made = {}  # inode of the socket by descriptor
        self._before = None  # the same while a process group is made

    @contextlib.contextmanager
    def being_made(self):
        with self._lock:
            self._made = {}
            self._before = _tcp_sockets()
        try:
            yield
        finally:
            with self._lock:
                self._made = _new(self._before)
                self._before = None

    def shut(self):
        """While a process group is being made, also those that come yet."""
        while self._shut_once():
            time.sleep(_SHUT_SECONDS)

    def _shut_once(self):
        with self._lock:
            is_being_made = self._before is not None
            made = _new(self._before) if is_being_made else self._made
            for fd, inode in made.items():
                with contextlib.suppress(OSError):  # it is closed by now, and may be another file
                    if os.fstat(fd).st_ino == inode:
                        with socket.socket(fileno=os.dup(fd)) as connection:
                            # Gloo reads the end, closes and tells what waits. A write that fails it would not tell all.
                            connection.shutdown(socket.SHUT_RD)
            return is_being_made


def _new(before):
    return {fd: inode for fd, inode in _tcp_sockets().items() if before.get(fd) != inode}


def _tcp_sockets():
    """Connections of this process, but no listener: Gloo ends the process when that is shut down."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        with contextlib.suppress(OSError):
            status = os.fstat(fd)
            if not stat.S_ISSOCK(status.st_mode):
                continue
            with socket.socket(fileno=os.dup(fd)) as one:
                is_tcp = one.family in (socket.AF_INET, socket.AF_INET6) and one.type == socket.SOCK_STREAM
                if is_tcp and not one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    found[fd] = status.st_ino
    return found
