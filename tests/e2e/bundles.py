# SPDX-License-Identifier: Apache-2.0
"""A bundle made from the build under test, unpacked somewhere else, and an environment that has nothing of this machine's."""

import importlib.util
import os
import pathlib
import shutil
import tarfile

import pytest
from conftest import BUILD, REPO, SESSION, TOKEN, run

TORCH = pathlib.Path(importlib.util.find_spec("torch").submodule_search_locations[0])


def bare_environment(**more):
    """What a login on another machine has: /usr/bin/python3 there has no torch."""
    return {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "DDPRUN_TOKEN": TOKEN, "TEST_SESSION": SESSION, **more}


def pack(output, *flags):
    return run([REPO / "deploy" / "bundle.sh", "--build", BUILD, "--output", output, *flags], timeout=300)


@pytest.fixture(scope="session")
def tarball(tmp_path_factory):
    path = tmp_path_factory.mktemp("packed") / "bundle.tar.gz"
    done = pack(path)
    assert done.returncode == 0, done.stderr
    path.with_name("said").write_text(done.stderr)
    return path


@pytest.fixture(scope="session")
def unpacked(tarball, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle")
    with tarfile.open(tarball) as archive:
        archive.extractall(folder)
    (bundle,) = folder.iterdir()
    return bundle


@pytest.fixture
def bundle(unpacked, tmp_path):
    """A fresh copy, of hard links, at a place whose name says nothing of where it was built."""
    return shutil.copytree(unpacked, tmp_path / "unpacked" / unpacked.name, symlinks=True, copy_function=os.link)
