# SPDX-License-Identifier: Apache-2.0
"""The scripts in deploy/: what they say when something is not there."""

import os
import pathlib
import re
import sys

import pytest
from conftest import BUILD, REPO, TORCHES, TRAIN, clean_environment, kept_cache, run, torch_folder

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


def test_a_version_of_torch_that_has_no_list_is_refused():
    for done in (run([SETUP, "--torch", "2.10.0"]), run([SETUP], env=clean_environment(DDPRUN_TORCH_VERSION="2.10.0"))):
        assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
        assert "DDPRUN_TORCH_VERSION is 2.10.0" in done.stderr and "2.11.0" in done.stderr and "DDPRUN_PYTHON" in done.stderr
    assert "--torch needs a version after it" in run([SETUP, "--torch"]).stderr


@pytest.fixture
def python_with_torch(tmp_path):
    """Makes a Python whose torch is the build's, but says that it is of another version."""

    def make(version):
        torch = pathlib.Path(torch_folder())
        site = tmp_path / "site"
        (site / "torch").mkdir(parents=True)
        for name in ("include", "lib", "__init__.py"):
            (site / "torch" / name).symlink_to(torch / name)
        (site / "nvidia").symlink_to(torch.parent / "nvidia")
        text = re.sub(r"(?m)^__version__ = .*", f"__version__ = '{version}'", (torch / "version.py").read_text())
        (site / "torch" / "version.py").write_text(text)
        fake(tmp_path, "python", f'PYTHONPATH={site} exec {sys.executable} "$@"\n')
        return tmp_path / "python"

    return make


@pytest.mark.skipif(not os.path.exists(TRAIN), reason="built without LibTorch")
def test_a_torch_that_nobody_has_tried_is_used_and_one_line_says_so(python_with_torch, tmp_path):
    configure = f'. {REPO}/deploy/common.sh; build_folder={tmp_path}/build; configure OFF'
    env = clean_environment(DDPRUN_PYTHON=str(python_with_torch("2.99.0+cu132")), **kept_cache())
    done = run(["bash", "-c", configure], env=env)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "newer than any that ddprun was tried with" in line]
    assert len(said) == 1 and said[0].startswith("ddprun: LibTorch 2.99.0 is newer"), done.stderr


@pytest.mark.skipif(not os.path.exists(TRAIN), reason="built without LibTorch")
def test_another_torch_than_the_one_that_was_asked_for_is_not_used(python_with_torch, tmp_path):
    env = clean_environment(DDPRUN_PYTHON=str(python_with_torch("2.12.0+cu130")), DDPRUN_TORCH_VERSION=TORCHES[-1])
    done = run([SETUP], env=env)
    assert done.returncode == 1 and f"has no torch {TORCHES[-1]} for CUDA" in done.stderr, done.stderr


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


def test_a_data_set_that_cannot_be_fetched_is_named(tmp_path):
    done = run([FETCH, "--dataset", "imagenet", tmp_path])
    assert done.returncode == 1
    assert "imagenet" in done.stderr and "cifar100" in done.stderr


def test_a_part_of_cifar100_is_gone_on_with(tmp_path):
    """The archive stands for the real one, so the checksum's program is one that takes it for good when it is whole."""
    source, data, tools = tmp_path / "cifar-100-binary", tmp_path / "data", tmp_path / "tools"
    for folder in (source, data, tools):
        folder.mkdir()
    (source / "train.bin").write_bytes(os.urandom(100_000))
    archive = tmp_path / "served.tar.gz"
    assert run(["tar", "-czf", archive, "-C", tmp_path, source.name]).returncode == 0
    whole = archive.read_bytes()
    fake(tools, "sha256sum", f'read -r sum file; [ "$sum" = 58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec ] && cmp -s "$file" {archive}\n')
    (data / "cifar-100-binary.tar.gz.part").write_bytes(whole[:30_000])
    # A server of which only the rest can be had.
    rest = tmp_path / "rest.tar.gz"
    rest.write_bytes(b"\0" * 30_000 + whole[30_000:])
    env = clean_environment(PATH=f"{tools}:/usr/bin:/bin", DDPRUN_CIFAR100_URL=f"file://{rest}")
    done = run([FETCH, "--dataset", "cifar100", data], env=env)
    assert done.returncode == 0, done.stderr
    assert (data / "cifar-100-binary" / "train.bin").read_bytes() == (source / "train.bin").read_bytes()
    assert not list(data.glob("*.part*"))
    again = run([FETCH, "--dataset=cifar100", data], env=env)
    assert again.returncode == 0 and "already" in again.stderr


def test_a_damaged_cifar100_is_not_unpacked(tmp_path):
    served = tmp_path / "served.tar.gz"
    served.write_bytes(b"not what it says")
    done = run([FETCH, "--dataset", "cifar100", tmp_path / "data"], env=clean_environment(DDPRUN_CIFAR100_URL=f"file://{served}"))
    assert done.returncode == 1
    assert "sha256" in done.stderr
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.skipif(not os.path.exists(TRAIN), reason="built without LibTorch")
def test_config_yaml_is_what_train_prints():
    """Every setting is in it, with its default and what it is for; `train --print-config` makes it anew."""
    text = (REPO / "deploy" / "config.yaml").read_text()
    done = run([TRAIN, "--print-config"])
    assert done.returncode == 0, done.stderr
    assert text.split("\n\n", 1)[1] == done.stdout
    again = run([TRAIN, "--config", REPO / "deploy" / "config.yaml", "--print-config"])
    assert again.stdout == done.stdout, again


def test_the_wheel_for_aarch64_is_without_train_and_its_compiler_is_named(tmp_path):
    wheel = REPO / "deploy" / "wheel.sh"
    both = run([wheel, "every-torch", "aarch64"])
    assert both.returncode == 1 and len(both.stderr.splitlines()) == 1 and "train is not in that of aarch64" in both.stderr, both
    other = run([wheel, "--build", BUILD, "aarch64"])
    assert other.returncode == 1 and "is a build for x86_64 and a wheel for aarch64 is asked for" in other.stderr, other
    (tmp_path / "CMakeCache.txt").write_text("DDPRUN_AARCH64_ROOT:PATH=/x\n")
    without = run([wheel, "--build", tmp_path, "aarch64"], env=clean_environment(DDPRUN_CACHE_DIR=str(tmp_path)))
    assert without.returncode == 1 and len(without.stderr.splitlines()) == 1, without
    assert f"{tmp_path}/aarch64 has no compiler for aarch64; run deploy/setup.sh --aarch64" in without.stderr
    toolchain = REPO / "deploy" / "aarch64" / "toolchain.cmake"
    command = ["cmake", "-S", REPO, "-B", tmp_path / "b", "-G", "Ninja", "--toolchain", toolchain, f"-DDDPRUN_AARCH64_ROOT={tmp_path}/none"]
    done = run(command)
    assert done.returncode == 1 and "run deploy/setup.sh --aarch64" in done.stderr.replace("\n  ", " "), done.stderr


def test_packages_for_aarch64_that_cannot_be_had_leave_nothing_behind(tmp_path):
    fake(tmp_path, "apt-get", "echo 'E: Unable to fetch some archives' >&2; exit 100\n")
    done = run([REPO / "deploy" / "aarch64" / "unpack.sh", tmp_path / "root"], env=clean_environment(PATH=f"{tmp_path}:/usr/bin:/bin"))
    assert done.returncode == 1, done
    assert "E: Unable to fetch some archives" in done.stderr and "check the network" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "root").exists() and not (tmp_path / "root.part").exists()
