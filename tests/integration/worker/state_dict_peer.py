# SPDX-License-Identifier: Apache-2.0
"""The other side of state_dict_test.cc: real Python reads what C++ wrote, and writes what C++ reads."""
import sys

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.body = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x):
        return self.body(torch.relu(self.norm(self.conv(x))).flatten(1))


def ramp(tensor, start):
    """What both sides fill tensor number `start` with, in the order of its elements."""
    return (torch.arange(tensor.numel(), dtype=torch.float64) / 8 + start).reshape(tensor.shape).to(tensor.dtype)


def read(path):
    state = torch.load(path)  # with its defaults: weights_only
    assert type(state) is dict, type(state)
    model = Net()
    assert list(state) == list(model.state_dict()), list(state)
    for number, (name, tensor) in enumerate(state.items()):
        assert tensor.device.type == "cpu" and tensor.is_contiguous() and not tensor.requires_grad, name
        assert tensor.dtype == model.state_dict()[name].dtype, name
        assert torch.equal(tensor, ramp(tensor, number)), name
    model.load_state_dict(state)
    model.eval()
    with torch.no_grad():
        print(" ".join(repr(float(v)) for v in model(ramp(torch.empty(1, 2, 4, 4), 0) / 10).flatten()))


def write(path):
    model = Net()
    state = model.state_dict()
    for number, tensor in enumerate(state.values()):
        tensor.copy_(ramp(tensor, number))
    torch.save(model.state_dict(), path)


def write_tied(path):
    """Two names for one tensor, a view of a larger storage, and a transposed one."""
    weight = torch.arange(6.0).reshape(2, 3)
    torch.save({"a": weight, "b": weight, "row": weight[1], "turned": weight.t()}, path)


def check_tied(path):
    state = torch.load(path)
    assert state["a"].data_ptr() == state["b"].data_ptr(), "tied tensors were parted"
    state["a"][0, 0] = 42
    assert state["b"][0, 0] == 42
    assert state["view"].untyped_storage().nbytes() == 4 * 3, "a whole storage was written for a piece of it"
    assert torch.equal(state["turned"], torch.arange(6.0).reshape(2, 3).t())


if __name__ == "__main__":
    {"read": read, "write": write, "write_tied": write_tied, "check_tied": check_tied}[sys.argv[1]](sys.argv[2])
