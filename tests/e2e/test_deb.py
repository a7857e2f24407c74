# SPDX-License-Identifier: Apache-2.0
"""deploy/deb.sh: packages that dpkg takes and lintian finds no error in. Installing them: packages_on_clean_machines.sh."""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import sys

import pytest
from conftest import BUILD, REPO, TRAIN, clean_environment, run

TORCH = pathlib.Path(importlib.util.find_spec("torch").submodule_search_locations[0])

pytestmark = [
    pytest.mark.skipif(not shutil.which("dpkg-shlibdeps"), reason="no dpkg-dev here"),
    pytest.mark.skipif(not os.path.exists(TRAIN), reason="built without LibTorch"),
]


def pack(folder):
    done = run([REPO / "deploy" / "deb.sh", "--build", BUILD, "--output", folder], timeout=300)
    assert done.returncode == 0, done.stderr
    return {path.name.split("_")[0]: path for path in folder.glob("*.deb")}


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    return pack(tmp_path_factory.mktemp("deb"))


@pytest.fixture(scope="module")
def unpacked(packages, tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    for path in packages.values():
        assert run(["dpkg-deb", "-x", path, root]).returncode == 0
    return root


def field(package, name):
    return run(["dpkg-deb", "-f", package, name]).stdout.strip()


def test_names_versions_and_dependencies(packages):
    version = re.search(r"^project\(ddprun VERSION (\S+)", (REPO / "CMakeLists.txt").read_text(), re.MULTILINE)[1]
    assert {"ddprun", "ddprun-train", "libddprun-dev"} == set(packages)
    assert {field(path, "Version") for path in packages.values()} == {f"{version}-1"}
    assert "libc6 (>= 2." in field(packages["ddprun"], "Depends")
    assert f"ddprun (= {version}-1)" in field(packages["ddprun-train"], "Depends")


def test_the_same_build_gives_the_same_bytes(packages, tmp_path):
    for name, path in pack(tmp_path).items():
        assert path.read_bytes() == packages[name].read_bytes(), name


@pytest.mark.skipif(not shutil.which("lintian"), reason="no lintian here")
def test_lintian_finds_no_error(packages):
    done = run(["lintian", "--tag-display-limit", "0", *packages.values()], timeout=300)
    assert not re.findall(r"^E: .*", done.stdout, re.MULTILINE), done.stdout


def test_nothing_looks_into_the_build_folder_or_the_cache(unpacked):
    for path in unpacked.rglob("*"):
        if path.is_file() and path.open("rb").read(4) == b"\x7fELF":
            assert not re.search(r"R(?:UN)?PATH", run(["readelf", "-d", path]).stdout), path


def test_what_is_linked_in_is_named_with_its_terms(unpacked):
    for package, has in (("ddprun", "libgrpc-dev"), ("ddprun-train", "libabsl-dev"), ("libddprun-dev", "libabsl-dev")):
        text = (unpacked / "usr" / "share" / "doc" / package / "copyright").read_text()
        assert f"\n==== {has} " in text and "Apache-2.0" in text


def test_train_finds_torch_or_says_what_is_missing(unpacked, tmp_path):
    train = unpacked / "usr" / "bin" / "train"
    found = run([train, "--print-config"], env=clean_environment(PATH=f"{os.path.dirname(sys.executable)}:/usr/bin:/bin"))
    assert found.returncode == 0 and "model:" in found.stdout, found.stderr
    missing = run([train], env=clean_environment(PATH="/usr/bin:/bin"))
    assert missing.returncode == 2 and len(missing.stderr.splitlines()) == 1 and "DDPRUN_TORCH" in missing.stderr, missing.stderr
    work = ["--dataset", "synthetic", "--batch-size", "8", "--max-steps", "2", "--no-eval", "--output-dir", tmp_path / "out"]
    env = clean_environment(PATH="/usr/bin:/bin", DDPRUN_TORCH=str(TORCH), OMP_NUM_THREADS="1")
    done = run([unpacked / "usr" / "bin" / "ddprun", "--standalone", "--nproc-per-node", "2", "train", *work], env=env)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["world_size"] == 2
    # Users of one machine have a torch each.
    assert not [path for path in unpacked.rglob("torch")]


@pytest.mark.parametrize("script", ["postinst", "prerm", "postrm"])
def test_the_scripts_are_sound(script):
    assert run(["sh", "-n", REPO / "deploy" / "debian" / script]).returncode == 0
