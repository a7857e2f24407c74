# SPDX-License-Identifier: Apache-2.0
"""The state of a training, from a rank that has it to those that lack it. Needs torch."""

import io
import pickle
import random


def send_state(state, step, went_on, is_synced):
    """All ranks: the lowest rank with the most complete steps sends its `state` (objects with state_dict()) where one lacks it.
    `went_on`: of two ranks with as many steps one whose process was there before counts. `is_synced`: this rank's parameters were once
    made those of the other ranks. Returns the step that all are at, and whether all have the same parameters now."""
    import torch
    import torch.distributed as dist

    mine = torch.tensor([2 * step + went_on, is_synced], device=_device())
    all_ranks = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(all_ranks, mine)
    known = [int(one[0]) for one in all_ranks]
    most = max(known)
    source = known.index(most)
    if min(known) < most:
        _broadcast(state, source, receives=known[dist.get_rank()] < most)
    is_common = all(one[1] for one, place in zip(all_ranks, known) if place == most)
    return most // 2, bool(is_common)


def random_state():
    """The states of the generators that a framework seeds: Python's, numpy's and torch's on the CPU."""
    import numpy
    import torch

    return random.getstate(), numpy.random.get_state(), torch.random.get_rng_state()


def set_random_state(state):
    import numpy
    import torch

    python, numpys, torchs = state
    random.setstate(python)
    numpy.random.set_state(numpys)
    torch.random.set_rng_state(torchs)


def check_world_size(first, now, count):
    """ValueError where a framework's `count` ("Trainer's count of steps") does not fit another number of ranks."""
    if now != first:
        raise ValueError(
            f"the training began with {first} ranks and this round has {now}, which {count} does not allow; start it with a fixed number "
            "of nodes (--nnodes N)"
        )


def _broadcast(state, source, receives):
    import torch.distributed as dist

    box, tensors = [None], []
    if dist.get_rank() == source:
        text = io.BytesIO()
        pickler = _pickler(text, tensors)
        pickler.dump([part.state_dict() for part in state])
        box = [text.getvalue()]
    dist.broadcast_object_list(box, source)
    if dist.get_rank() != source:
        states = _unpickler(io.BytesIO(box[0]), tensors).load()
    for tensor in tensors:
        _broadcast_tensor(tensor, source)
    if receives:
        for part, one in zip(state, states, strict=True):
            part.load_state_dict(one)


def _broadcast_tensor(tensor, source):
    """As bytes, of any type, and by a device that the group has."""
    import torch
    import torch.distributed as dist

    plain = tensor.to(_device()).contiguous().reshape(-1).view(torch.uint8)
    dist.broadcast(plain, source)
    if dist.get_rank() != source:
        tensor.copy_(plain.view(tensor.dtype).reshape(tensor.shape))


def _device():
    """Where the group's collectives take their tensors."""
    import torch
    import torch.distributed as dist

    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")


def _pickler(file, tensors):
    """Tensors are not in the text: they are put into `tensors`, in its order."""
    import torch

    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            if not isinstance(value, torch.Tensor):
                return None
            tensors.append(value.detach())
            return tuple(value.shape), value.dtype, value.device.type

    return Pickler(file)


def _unpickler(file, tensors):
    import torch

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, description):
            shape, dtype, device = description
            tensors.append(torch.empty(shape, dtype=dtype, device=device))
            return tensors[-1]

    return Unpickler(file)
