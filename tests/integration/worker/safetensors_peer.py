# SPDX-License-Identifier: Apache-2.0
"""The other side of safetensors_test.cc: the real safetensors package reads what C++ wrote, and writes what C++ reads."""
import sys

import torch
from safetensors import safe_open
from safetensors.torch import save_file

TYPES = {
    "bool": torch.bool,
    "u8": torch.uint8,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
}


def tensors():
    """What both sides write."""
    made = {name: torch.arange(6).reshape(2, 3).to(dtype) for name, dtype in TYPES.items()}
    made["scalar"] = torch.tensor(7.5)
    made["empty"] = torch.empty(3, 0)
    return made


def read(path):
    expected = tensors()
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == {"format": "pt", "about": '{"step": 3}'}, file.metadata()
        assert set(file.keys()) == set(expected)
        for name, tensor in expected.items():
            got = file.get_tensor(name)
            assert got.dtype == tensor.dtype and got.shape == tensor.shape and torch.equal(got, tensor), name


def write(path):
    save_file(tensors(), path, metadata={"format": "pt", "about": '{"step": 3}'})


if __name__ == "__main__":
    {"read": read, "write": write}[sys.argv[1]](sys.argv[2])
