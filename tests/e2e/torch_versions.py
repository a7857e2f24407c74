# SPDX-License-Identifier: Apache-2.0
"""The versions of PyTorch that deploy/setup.sh has installed here, for tests that hold for each of them."""

import importlib.metadata
import os
import pathlib
import sys

import pytest

OWN = importlib.metadata.version("torch").partition("+")[0]
CACHE = pathlib.Path(os.environ.get("DDPRUN_CACHE_DIR") or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "ddprun")


def pythons():
    """{version: its Python}, that of the tests first."""
    found = {OWN: sys.executable}
    for folder in sorted(CACHE.glob("torch-*")):
        version, python = folder.name.removeprefix("torch-"), folder / "bin" / "python"
        is_there = any(folder.glob(f"lib/python*/site-packages/torch-{version}.dist-info/RECORD"))  # the last file that pip writes
        if is_there and python.exists():
            found.setdefault(version, str(python))
    return found


def numbers(version):
    return tuple(int(part) for part in version.split(".")[:2])


def each_version(since="2.11", until="99"):
    """Parameters `python` of a test: the tests' own Python in CI, the others at night."""
    chosen = {version: python for version, python in pythons().items() if numbers(since) <= numbers(version) <= numbers(until)}
    parameters = [pytest.param(python, id=version, marks=() if version == OWN else pytest.mark.nightly) for version, python in chosen.items()]
    none = pytest.param("", id="none", marks=pytest.mark.skip("none of the listed versions is installed here"))
    return pytest.mark.parametrize("python", parameters or [none])
