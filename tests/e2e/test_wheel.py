# SPDX-License-Identifier: Apache-2.0
"""deploy/wheel.sh: a wheel that pip installs, whose programs need nothing newer than glibc 2.31, and torch for train alone."""

import base64
import csv
import hashlib
import importlib.util
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest
from conftest import BUILD, REPO, TRAIN, clean_environment, free_port, run, torch_minor
from packaging.metadata import Metadata
from packaging.utils import parse_wheel_filename

TORCH = pathlib.Path(importlib.util.find_spec("torch").submodule_search_locations[0])
NEWEST = {"GLIBC": (2, 31), "GLIBCXX": (3, 4, 28), "CXXABI": (1, 3, 12)}  # of Debian 11
WORK = ["--dataset", "synthetic", "--batch-size", "8", "--max-steps", "2", "--log-every", "1", "--no-eval", "--output-dir", "out"]

pytestmark = [
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="the wheel is for x86-64"),
    pytest.mark.skipif(
        tuple(map(int, os.confstr("CS_GNU_LIBC_VERSION").split()[1].split("."))) > (2, 36), reason="the wheel is made on Debian 12"
    ),
    pytest.mark.skipif(not os.path.exists(TRAIN), reason="built without LibTorch"),
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    done = run([REPO / "deploy" / "wheel.sh", "--build", BUILD, "--output", folder], timeout=300)
    assert done.returncode == 0, done.stderr
    return pathlib.Path(done.stdout.strip())


@pytest.fixture(scope="module")
def venv(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("venv") / "v"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=120)
    done = run([folder / "bin" / "python", "-m", "pip", "install", "-q", "--no-index", wheel])
    assert done.returncode == 0, done
    return folder


@pytest.fixture
def call(venv, tmp_path):
    def run_installed(name, *arguments, **more):
        env = clean_environment(PATH=f"{venv}/bin:/usr/bin:/bin", HOME=str(tmp_path), OMP_NUM_THREADS="1", **more)
        return run([venv / "bin" / name, *arguments], env=env, cwd=tmp_path)

    return run_installed


@pytest.fixture
def torch_beside(venv):
    """The packages torch and nvidia in the same site-packages, as pip would put them there."""
    (packages,) = venv.glob("lib/python3*/site-packages")
    links = [packages / name for name in ("torch", "nvidia") if (TORCH.parent / name).exists()]
    for link in links:
        link.symlink_to(TORCH.parent / link.name)
    yield
    for link in links:
        link.unlink()


# ---- The file ------------------------------------------------------------------------------------------------------------


def test_name_metadata_and_record_are_as_the_specifications_say(wheel):
    name, version, _, tags = parse_wheel_filename(wheel.name)
    assert name == "ddprun" and [str(tag) for tag in tags] == ["py3-none-manylinux_2_31_x86_64"]
    with zipfile.ZipFile(wheel) as archive:
        info = f"ddprun-{version}.dist-info"
        metadata = Metadata.from_email(archive.read(f"{info}/METADATA"), validate=True)
        assert metadata.version == version and not [one for one in metadata.requires_dist if one.marker is None]
        recorded = {row[0]: row[1:] for row in csv.reader(io.StringIO(archive.read(f"{info}/RECORD").decode()))}
        assert sorted(recorded) == sorted(archive.namelist())
        for path, (digest, size) in recorded.items():
            data = archive.read(path)
            if path != f"{info}/RECORD":
                expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                assert (digest, size) == (f"sha256={expected}", str(len(data))), path


def test_what_is_linked_in_is_listed_with_its_terms(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name.split(".dist-info/")[1] for name in archive.namelist() if ".dist-info/" in name}
        (path,) = [name for name in archive.namelist() if name.endswith("sboms/ddprun.spdx.json")]
        listed = json.loads(archive.read(path))
    assert listed["spdxVersion"] == "SPDX-2.3"
    packages = {package["name"]: package["versionInfo"] for package in listed["packages"]}
    assert {"ddprun", "libgrpc-dev", "libssl-dev", "libprotobuf-dev", "libcairo2-dev", "libcivetweb1", "libisal2"} <= set(packages) and all(packages.values())
    assert {f"licenses/{name}" for name in packages if name != "ddprun"} | {"licenses/LICENSE"} <= names


def test_no_file_asks_for_newer_symbols_than_glibc_2_31_has(venv):
    files = [path for path in venv.rglob("*") if path.is_file() and not path.is_symlink() and path.open("rb").read(4) == b"\x7fELF"]
    assert len(files) >= 8
    for path in files:
        for text in (run(["objdump", "-p", path]).stdout.partition("Version References:")[2], run(["objdump", "-T", path]).stdout):
            for kind, number in re.findall(r"\b(GLIBC|GLIBCXX|CXXABI)_(\d[\d.]*)", text):
                assert tuple(map(int, number.split("."))) <= NEWEST[kind], (path, kind, number)


def test_the_same_build_gives_the_same_bytes(wheel, tmp_path):
    command = [sys.executable, REPO / "deploy" / "wheel" / "pack_wheel.py", BUILD, BUILD / "portable", tmp_path]
    again = run(command)
    assert again.returncode == 0, again.stderr
    assert pathlib.Path(again.stdout.strip()).read_bytes() == wheel.read_bytes()


# ---- Installed, without torch --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ddprun", "ddpctl", "ddprun-rendezvous", "ddprun-stacks"])
def test_the_launchers_programs_run(call, name):
    done = call(name, "--help")
    assert done.returncode == 0 and name in done.stdout, done


def test_two_workers(call):
    done = call("ddprun", "--standalone", "--nproc-per-node", 2, "sh", "-c", "echo rank $RANK")
    assert done.returncode == 0 and sorted(re.findall(r"rank \d", done.stdout)) == ["rank 0", "rank 1"], done


def test_two_nodes_that_meet_over_tls(call):
    """gRPC, OpenSSL and threads, which a run of one node does without."""
    done = call("ddprun", "-H", "localhost,127.0.0.1", "--master-port", free_port(), "sh", "-c", "echo rank $RANK")
    assert done.returncode == 0 and sorted(re.findall(r"rank \d", done.stdout)) == ["rank 0", "rank 1"], done


def test_metrics_are_served(call):
    port = free_port()
    script = f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{port}/metrics').read().decode())"
    done = call("ddprun", "--standalone", "--metrics-port", port, "python", "-c", script)
    assert done.returncode == 0 and "# TYPE ddprun_" in done.stdout, done


def test_python_finds_launcher_and_package(call, venv):
    assert call("python", "-m", "ddprun", "--version").stdout == call("ddprun", "--version").stdout
    done = call("ddprun", "-m", "ddprun", "--version")
    assert done.returncode == 0 and "ddprun" in done.stdout, done
    assert str(venv) in call("python", "-c", "import ddprun; print(ddprun.progress, ddprun.__file__)").stdout
    assert call("python", "-m", "pip", "check").returncode == 0
    assert (venv / "share" / "man" / "man1" / "ddprun.1").is_file()


def test_a_function_is_launched_by_the_program_beside_python(call):
    done = call("python", "-c", "import ddprun, os; print(ddprun.launch(os.getenv, ('RANK',), nproc_per_node=2))")
    assert done.stdout == "{0: '0', 1: '1'}\n", done.stderr


def test_a_script_runs_in_the_environment_also_if_that_is_not_active(venv, tmp_path):
    """As under cron, systemd and a container's CMD."""
    script = tmp_path / "job.py"
    script.write_text("import sys; print(sys.prefix)")
    done = run([venv / "bin" / "ddprun", "--standalone", script], env=clean_environment(PATH="/usr/bin:/bin"))
    assert done.stdout == f"[0] {venv}\n", done.stderr


def test_train_without_torch_is_one_sentence(call):
    done = call("train", "--help")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert f"pip install 'torch=={torch_minor()}.*'" in done.stderr and "DDPRUN_TORCH" in done.stderr
    wrong = call("train", "--torch", "/usr")
    assert wrong.returncode == 2 and "--torch names /usr" in wrong.stderr


def test_train_with_another_version_is_one_sentence(call, tmp_path):
    (tmp_path / "torch" / "lib").mkdir(parents=True)
    (tmp_path / "torch" / "lib" / "libtorch_cpu.so").touch()
    (tmp_path / "torch" / "version.py").write_text("__version__ = '2.10.0+cu128'\n")
    done = call("train", DDPRUN_TORCH=str(tmp_path / "torch"))
    assert done.returncode == 2 and "2.10.0+cu128" in done.stderr and f"built for {torch_minor()}" in done.stderr, done.stderr


# ---- With torch ----------------------------------------------------------------------------------------------------------


def test_train_runs_with_the_torch_beside_it(call, torch_beside, tmp_path):
    done = call("ddprun", "--standalone", "--nproc-per-node", 2, "train", *WORK)
    assert done.returncode == 0 and len(re.findall(r"batch \d+/\d+ loss", done.stdout)) == 4, done
    done = call("train", "--world-size", 2, *WORK)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["world_size"] == 2
    assert call("train", "plot", "out", "--output", "curves.png").returncode == 0
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_train_runs_with_a_torch_that_is_named(call):
    for flags, variables in ((["--torch", TORCH], {}), ([f"--torch={TORCH}"], {}), ([], {"DDPRUN_TORCH": str(TORCH)})):
        done = call("train", *flags, "--print-config", **variables)
        assert done.returncode == 0 and "model:" in done.stdout, done.stderr


@pytest.mark.skipif(not (BUILD / "bin" / "libddprun_cuda.so").exists(), reason="built without CUDA")
def test_the_gpu_half_loads(call, torch_beside):
    load = "import ctypes, ddprun; ctypes.CDLL(ddprun.__path__[0] + '/bin/torch-VERSION/libddprun_cuda.so').ddprun_accelerator"
    assert call("python", "-c", load.replace("VERSION", torch_minor())).returncode == 0
