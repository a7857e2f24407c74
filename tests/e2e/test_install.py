# SPDX-License-Identifier: Apache-2.0
"""`cmake --install` into a folder that is then moved: all programs are there and run from there."""

import os
import re
import shutil

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


def test_every_program_has_a_manual_page_that_man_takes(installed):
    """But for ddprun-plot: it is `train plot`, which is in train's."""
    programs = {name for name in os.listdir(BIN) if not name.endswith(".so")} - {"ddprun-plot"}
    pages = installed / "share" / "man" / "man1"
    assert {path.stem for path in pages.iterdir()} == programs
    if shutil.which("man"):
        for page in pages.iterdir():
            done = run(["man", "--warnings", "-l", page], env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8"})
            assert done.returncode == 0 and not done.stderr, done.stderr
            assert all(word in done.stdout for word in ("NAME", "SYNOPSIS", "OPTIONS", page.stem)), done.stdout


def test_a_manual_page_has_what_help_has(installed):
    page = (installed / "share" / "man" / "man1" / "ddpctl.1").read_text().replace("\\-", "-")
    for command in ("stop", "logs", "chaos"):
        for flag in re.findall(r"--[a-z-]+", run([installed / "bin" / "ddpctl", command, "--help"]).stdout):
            assert flag in page, (command, flag)


@pytest.mark.parametrize(
    ("component", "has", "has_not"),
    [("launcher", {"bin/ddprun", "share/ddprun/python/ddprun/__init__.py", "share/ddprun/LICENSE"}, {"bin/train"}),
     ("train", {"bin/train", "share/man/man1/train.1", "share/ddprun/configs/config.yaml"}, {"bin/ddprun"})],
)
@pytest.mark.skipif(not os.path.exists(TRAIN), reason="built without LibTorch")
def test_a_component_alone(tmp_path, component, has, has_not):
    assert run(["cmake", "--install", BUILD, "--prefix", tmp_path, "--component", component]).returncode == 0
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert has <= files and not has_not & files, files


def test_the_python_package_is_there(installed):
    env = clean_environment(PYTHONPATH=str(installed / "share" / "ddprun" / "python"), PYTHONDONTWRITEBYTECODE="1")
    done = run(["python3", "-c", "import ddprun; print(ddprun.__file__)"], env=env)
    assert done.stdout.startswith(str(installed)), done


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze here")
def test_systemd_takes_the_unit(installed, tmp_path):
    """At the place where it would be, for systemd knows no other folder of programs."""
    root = tmp_path / "root"
    shutil.copytree(installed / "lib" / "systemd", root / "usr" / "lib" / "systemd")
    (root / "usr" / "bin").mkdir(parents=True)
    shutil.copy(installed / "bin" / "ddprun-rendezvous", root / "usr" / "bin")
    unit = installed / "lib" / "systemd" / "system" / "ddprun-rendezvous.service"
    rated = run(["systemd-analyze", "security", "--offline=true", "--threshold=20", unit])
    assert rated.returncode == 0, rated
    done = run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", f"--root={root}", "ddprun-rendezvous.service"])
    assert "ddprun-rendezvous" not in done.stderr, done


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


def test_the_quickstart_builds_all_that_is_installed():
    """`cmake --install build` works after it; so do the README's other programs."""
    text = (REPO / "deploy" / "quickstart.sh").read_text()
    assert re.search(r"^build OFF$", text, re.MULTILINE)
