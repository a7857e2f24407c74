# SPDX-License-Identifier: Apache-2.0
"""The scripts in deploy/: what they say when something is not there."""

import os

import pytest
from conftest import REPO, clean_environment, run

SETUP = REPO / "deploy" / "setup.sh"
FETCH = REPO / "deploy" / "fetch-data.sh"


def fake(folder, name, script):
    path = folder / name
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)


def test_a_second_setup_changes_nothing():
    done = run([SETUP], env=clean_environment(**kept_cache()))
    assert done.returncode == 0, done.stderr
    assert "ready" in done.stderr and "installing" not in done.stderr


def kept_cache():
    return {name: os.environ[name] for name in ("DDPRUN_CACHE_DIR", "DDPRUN_PYTHON") if name in os.environ}


def test_without_root_or_sudo_it_says_what_an_administrator_must_install(tmp_path):
    fake(tmp_path, "dpkg-query", "exit 1\n")  # nothing is installed
    fake(tmp_path, "id", "echo 1000\n")
    fake(tmp_path, "sudo", "exit 1\n")
    done = run([SETUP], env=clean_environment(PATH=f"{tmp_path}:/usr/bin:/bin", **kept_cache()))
    assert done.returncode == 1
    assert "apt-get install --no-install-recommends" in done.stderr
    for package in ("libgrpc++-dev", "cmake", "dataset-fashion-mnist"):
        assert package in done.stderr
    assert "libgtest-dev" not in done.stderr  # only the tests need it


def test_with_sudo_it_installs_what_is_missing(tmp_path):
    fake(tmp_path, "dpkg-query", 'case "$*" in *cmake*) exit 1;; esac\necho "install ok installed"\n')
    fake(tmp_path, "id", "echo 1000\n")
    fake(tmp_path, "sudo", f'[ "$1" = -n ] && exit 0\necho "$@" >>{tmp_path}/asked\n')
    done = run([SETUP], env=clean_environment(PATH=f"{tmp_path}:/usr/bin:/bin", **kept_cache()))
    assert done.returncode == 0, done.stderr
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[0] == "apt-get update -q"
    assert asked[1].endswith("apt-get install -yq --no-install-recommends cmake")


def test_a_python_without_torch_is_refused_by_name(tmp_path):
    fake(tmp_path, "python-without", "exit 1\n")
    done = run([SETUP], env=clean_environment(DDPRUN_PYTHON=str(tmp_path / "python-without")))
    assert done.returncode == 1
    assert "python-without" in done.stderr and "torch" in done.stderr


@pytest.mark.parametrize("script", [SETUP, FETCH])
def test_unknown_arguments(script):
    done = run([script, "--colour"])
    assert done.returncode == 1
    assert "--colour" in done.stderr


def test_cifar10_without_a_network_says_where_to_put_the_file(tmp_path):
    missing = tmp_path / "nowhere" / "cifar-10-binary.tar.gz"
    done = run([FETCH, tmp_path / "data"], env=clean_environment(DDPRUN_CIFAR10_URL=f"file://{missing}"))
    assert done.returncode == 1
    assert f"put it at {tmp_path}/data/cifar-10-binary.tar.gz" in done.stderr
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_damaged_cifar10_is_refused(tmp_path, by_hand):
    data = tmp_path / "data"
    data.mkdir()
    archive = data / "cifar-10-binary.tar.gz" if by_hand else tmp_path / "served.tar.gz"
    archive.write_bytes(b"not what it says")
    done = run([FETCH, data], env=clean_environment(DDPRUN_CIFAR10_URL=f"file://{tmp_path}/served.tar.gz"))
    assert done.returncode == 1
    assert "sha256" in done.stderr
    assert archive.exists()  # a user's own file is left for the user to judge
    assert sorted(path.name for path in data.iterdir()) == ([archive.name] if by_hand else [])
