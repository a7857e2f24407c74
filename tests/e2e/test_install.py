# SPDX-License-Identifier: Apache-2.0
"""`cmake --install` into a folder that is then moved: all programs are there and run from there."""

import os
import re

import pytest
from conftest import BIN, BUILD, REPO, TRAIN, clean_environment, free_port, run


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("install")
    done = run(["cmake", "--install", BUILD, "--prefix", folder / "made"])
    assert done.returncode == 0, done
    (folder / "made").rename(folder / "moved")
    return folder / "moved"


@pytest.fixture
def call(installed, tmp_path):
    """Runs one of the installed programs, with nothing of the build in PATH."""

    def run_installed(name, *arguments):
        env = clean_environment(PATH="/usr/bin:/bin", HOME=str(tmp_path))
        return run([installed / "bin" / name, *arguments], env=env, cwd=tmp_path)

    return run_installed


def test_every_program_of_the_build_is_installed(installed):
    assert sorted(os.listdir(installed / "bin")) == sorted(os.listdir(BIN))
    assert (installed / "share" / "man" / "man1" / "ddprun.1").is_file()


def test_nothing_looks_into_the_build_folder(installed):
    for path in (installed / "bin").iterdir():
        found = run(["readelf", "-d", path]).stdout
        assert str(BUILD) not in found and "not found" not in run(["ldd", path]).stdout, (path, found)


@pytest.mark.parametrize("name", ["ddprun", "ddpctl", "ddprun-rendezvous"])
def test_the_launchers_programs_run(call, name):
    done = call(name, "--help")
    assert done.returncode == 0 and name in done.stdout, done


def test_a_run_finds_all_that_it_needs_beside_itself(call):
    """Node and head are the installed program; metrics are a library that is opened when they are wanted."""
    done = call("ddprun", "-H", "localhost:2", "--metrics-port", str(free_port()), "sh", "-c", "echo $RANK")
    assert done.returncode == 0 and sorted(line[-1] for line in done.stdout.splitlines()) == ["0", "1"], done


@pytest.mark.skipif(not os.path.exists(TRAIN), reason="built without LibTorch")
def test_train_runs_from_there(call):
    work = ["--dataset", "synthetic", "--batch-size", "8", "--max-steps", "2", "--log-every", "1", "--no-eval"]
    done = call("ddprun", "--standalone", "--nproc-per-node", "2", "train", *work, "--output-dir", "out")
    assert done.returncode == 0 and len(re.findall(r"batch \d+/\d+ loss", done.stdout)) == 4, done
    assert call("train", "plot", "--help").returncode == 0


def test_the_quickstart_builds_what_the_readme_uses_next():
    text = (REPO / "deploy" / "quickstart.sh").read_text()
    built = re.search(r"^build OFF (.*)$", text, re.MULTILINE).group(1).split()
    assert set(built) == {"ddprun", "ddpctl", "ddprun-rendezvous", "train"}
