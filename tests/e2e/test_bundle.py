# SPDX-License-Identifier: Apache-2.0
"""deploy/bundle.sh: what it packs runs on another Linux that has torch, and says what is missing where it has none."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from bundles import TORCH, bare_environment, bundle, pack, tarball, unpacked  # noqa: F401  (fixtures)
from conftest import BUILD, REPO, run, torch_minor

# Libraries of glibc and the compiler, and what the kernel brings.
RUNTIME = re.compile(r"^(ld-linux|linux-vdso|lib(c|m|dl|pthread|rt|resolv|anl|util|stdc\+\+|gcc_s)\.so)")
NEWEST = {"GLIBC": (2, 36), "GLIBCXX": (3, 4, 30)}
WORK = ["--dataset", "synthetic", "--samples", "128", "--batch-size", "16", "--max-steps", "4", "--log-every", "1", "--no-eval"]


def output_of(*command, **options):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True, **options).stdout


def programs_and_libraries(folder):
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return [path for path in files if path.open("rb").read(4) == b"\x7fELF"]


def train(folder, *arguments, **variables):
    return run([folder / "bin" / "train", *arguments], env=bare_environment(**variables))


def needs_mounts(*prepare):
    """The words that run a command in a mount namespace in which `prepare`, a shell script, has been run."""
    script = "; ".join(["set -e", *prepare, 'exec "$@"'])
    words = ["unshare", "--mount", "sh", "-c", script, "sh"]
    if subprocess.run([*words, "true"], capture_output=True).returncode != 0:
        pytest.skip("this user may not mount")
    return words


# ---- What is in it -------------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_the_same_build_gives_the_same_bytes(tmp_path, tarball):  # noqa: F811
    pack(tmp_path / "again.tar.gz")
    assert (tmp_path / "again.tar.gz").read_bytes() == tarball.read_bytes()


def test_it_has_the_programs_and_says_its_size(bundle, tarball):  # noqa: F811
    said = tarball.with_name("said").read_text()
    assert re.search(r"bundle.tar.gz has \d+\.\d MB of at most 64", said), said
    assert tarball.stat().st_size <= 64 << 20
    names = {str(path.relative_to(bundle)) for path in bundle.rglob("*")}
    assert {f"bin/{name}" for name in ("ddprun", "ddpctl", "ddprun-rendezvous", "ddprun-stacks", "train")} <= names
    assert {f"libexec/torch-{torch_minor()}/train", "libexec/ddprun-plot", "libexec/ddprun", "tests/gpu/run.sh", "configs/config.yaml"} <= names
    assert {"LICENSE", "README.md", "LIBRARIES.txt", "bundle.json"} <= names
    assert "@" not in (bundle / "README.md").read_text()


def test_nothing_of_the_build_machine_is_in_a_search_path(bundle):  # noqa: F811
    files = programs_and_libraries(bundle)
    assert len(files) > 8
    for path in files:
        for entry in re.findall(r"^\s*(?:RUNPATH|RPATH)\s+(\S+)", output_of("objdump", "-p", path), re.MULTILINE):
            for folder in entry.split(":"):
                assert folder == "$ORIGIN" or folder.startswith("$ORIGIN/../"), f"{path} searches {folder}"


@pytest.mark.skipif(
    tuple(map(int, os.confstr("CS_GNU_LIBC_VERSION").split()[1].split("."))) > NEWEST["GLIBC"],
    reason="built with a newer glibc than Debian 12's: README.md of the bundle names what it needs",
)
def test_no_file_asks_for_newer_symbols_than_debian_12_has(bundle):  # noqa: F811
    asked = {}
    for path in programs_and_libraries(bundle):
        for kind, number in re.findall(r"\b(GLIBC|GLIBCXX)_(\d[\d.]*)", output_of("objdump", "-T", path)):
            asked.setdefault(kind, set()).add(tuple(map(int, number.split("."))))
    for kind, limit in NEWEST.items():
        assert asked[kind] and max(asked[kind]) <= limit, (kind, max(asked[kind]))
    told = json.loads((bundle / "bundle.json").read_text())
    assert tuple(map(int, told["needs"]["GLIBC"].split("."))) <= NEWEST["GLIBC"]


def test_each_packed_library_is_named_with_its_package_and_its_terms(bundle):  # noqa: F811
    listed = (bundle / "LIBRARIES.txt").read_text()
    for path in (bundle / "lib").iterdir():
        package = re.search(rf"^lib/{re.escape(path.name)}\s+(\S+) \d", listed, re.MULTILINE)
        assert package, f"{path.name} is not in LIBRARIES.txt"
        assert (bundle / "licenses" / package[1]).stat().st_size > 0
    # What is linked in is in there too.
    for package in ("libgrpc-dev", "libssl-dev", "libprotobuf-dev", "nlohmann-json3-dev"):
        assert re.search(rf"\s{package} \d", listed) and (bundle / "licenses" / package).exists(), package


# ---- That it runs elsewhere ----------------------------------------------------------------------------------------------


def test_every_library_is_the_bundles_or_torchs_or_the_runtimes(bundle):  # noqa: F811
    (bundle / "torch").symlink_to(TORCH)
    beside_torch = os.path.realpath(TORCH.parent) + "/"
    for path in programs_and_libraries(bundle):
        told = output_of("ldd", path, env=bare_environment())
        assert "not found" not in told, f"{path}: {told}"
        for name, found in re.findall(r"^\s*(\S+) => (/\S+)", told, re.MULTILINE):
            real = os.path.realpath(found)
            ours = real.startswith((str(bundle.resolve()) + "/", beside_torch))
            # What only LibTorch asks for it may take from the system.
            assert ours or RUNTIME.match(name), f"{path.name} takes {name} from {found}"


def test_it_trains_where_none_of_the_packed_libraries_is_installed(bundle, tmp_path):  # noqa: F811
    """Each packed library's copy on this machine is covered by an empty file, which nothing can load."""
    names = [path.name for path in (bundle / "lib").iterdir()]
    folders = (f"/usr/lib/{os.uname().machine}-linux-gnu", f"/lib/{os.uname().machine}-linux-gnu", "/usr/lib", "/usr/lib64")
    copies = {os.path.realpath(f"{folder}/{name}") for folder in folders for name in names if os.path.exists(f"{folder}/{name}")}
    assert len(copies) >= len(names)
    hidden = needs_mounts(*(f"mount --bind /dev/null {copy}" for copy in sorted(copies)))

    def inside(*command):
        return run([*hidden, *command], env=bare_environment(DDPRUN_TORCH=str(TORCH), OMP_NUM_THREADS="1"))

    out = tmp_path / "out"
    done = inside(bundle / "bin" / "ddprun", "--standalone", "--nproc-per-node", 2, bundle / "bin" / "train", *WORK, "--output-dir", out)
    assert done.returncode == 0, done.stderr
    assert json.loads((out / "summary.json").read_text())["world_size"] == 2
    assert len(re.findall(r"batch \d+/\d+ loss", done.stdout)) == 8, done.stdout
    assert (bundle / "torch").resolve() == TORCH.resolve()
    for program in ("ddpctl", "ddprun-rendezvous"):
        assert inside(bundle / "bin" / program, "--help").returncode == 0
    plotted = inside(bundle / "bin" / "train", "plot", out, "--output", tmp_path / "curves.png")
    assert plotted.returncode == 0, plotted.stderr
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_ddprun_needs_neither_torch_nor_python(bundle, tmp_path):  # noqa: F811
    tools = tmp_path / "tools"
    tools.mkdir()
    done = run([bundle / "bin" / "ddprun", "--standalone", "--nproc-per-node", 2, "/bin/sh", "-c", "echo rank $RANK"],
               env=bare_environment(PATH=str(tools)))
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"rank \d", done.stdout)) == ["rank 0", "rank 1"], done.stdout


@pytest.mark.skipif(not (BUILD / "bin" / "libddprun_cuda.so").exists(), reason="built without CUDA")
def test_the_gpu_half_loads_by_the_remembered_torch(bundle):  # noqa: F811
    (bundle / "torch").symlink_to(TORCH)
    load = f"import ctypes; ctypes.CDLL('{bundle}/libexec/torch-{torch_minor()}/libddprun_cuda.so').ddprun_accelerator"
    done = run(["/usr/bin/python3", "-c", load], env=bare_environment())
    assert done.returncode == 0, done.stderr


# ---- How torch is found --------------------------------------------------------------------------------------------------


def test_torch_is_that_of_python3_and_is_remembered(bundle):  # noqa: F811
    path = f"{os.path.dirname(sys.executable)}:/usr/bin:/bin"
    done = train(bundle, "--print-config", PATH=path)
    assert done.returncode == 0, done.stderr
    assert os.readlink(bundle / "torch") == str(TORCH.resolve())
    again = train(bundle, "--print-config", PATH="/usr/bin:/bin")
    assert (again.returncode, again.stdout) == (0, done.stdout), again.stderr


def test_a_torch_that_is_named_wins_over_the_remembered_one(bundle, tmp_path):  # noqa: F811
    """What is remembered stays: others may be loading through it."""
    (bundle / "torch").symlink_to(tmp_path / "gone")
    assert train(bundle, "--print-config").returncode == 2
    for flags, variables in (
        (["--torch", TORCH], {}), ([f"--torch={TORCH}"], {}), ([], {"DDPRUN_TORCH": str(TORCH)}),
    ):
        done = train(bundle, *flags, "--print-config", **variables)
        assert done.returncode == 0 and "model:" in done.stdout, done.stderr
    assert os.readlink(bundle / "torch") == str(tmp_path / "gone")


def test_a_folder_that_cannot_be_written_serves_as_well(bundle, tmp_path):  # noqa: F811
    fixed = needs_mounts(f"mount --bind {bundle} {bundle}", f"mount -o remount,ro,bind {bundle}")
    command = [bundle / "bin" / "ddprun", "--standalone", "--nproc-per-node", 2, "train", "--torch", TORCH, *WORK]
    done = run([*fixed, *command, "--output-dir", tmp_path / "out"], env=bare_environment(OMP_NUM_THREADS="1"))
    assert done.returncode == 0, done.stderr
    assert not (bundle / "torch").exists()


def test_ranks_that_train_starts_itself_find_it_too(bundle, tmp_path):  # noqa: F811
    done = train(bundle, "--torch", TORCH, "--world-size", "2", *WORK, "--output-dir", tmp_path / "out", OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["world_size"] == 2


def fake_torch(folder, version):
    (folder / "lib").mkdir(parents=True)
    (folder / "lib" / "libtorch_cpu.so").touch()
    (folder / "version.py").write_text(f"from typing import Optional\n__version__ = '{version}'\n")
    return folder


def test_no_torch_is_one_sentence(bundle, tmp_path):  # noqa: F811
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("readlink", "sed", "ln", "sh"):
        (tools / name).symlink_to(shutil.which(name))
    without_python = train(bundle, PATH=str(tools))
    assert "no python3 in PATH" in without_python.stderr
    without_torch = train(bundle)
    assert "/usr/bin/python3 has no package torch" in without_torch.stderr
    for done in (without_python, without_torch):
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
        assert f"pip install 'torch=={torch_minor()}.*'" in done.stderr and "--torch" in done.stderr and "DDPRUN_TORCH" in done.stderr
    assert not os.path.lexists(bundle / "torch")


def test_another_version_is_one_sentence(bundle, tmp_path):  # noqa: F811
    old = fake_torch(tmp_path / "site" / "torch", "2.10.0+cu128")
    (old / "__init__.py").touch()
    for named, variables in (
        (["--torch", old], {}), ([], {"DDPRUN_TORCH": str(old)}), ([], {"PYTHONPATH": str(old.parent)}),
    ):
        done = train(bundle, *named, "--print-config", **variables)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
        assert str(old) in done.stderr and "2.10.0+cu128" in done.stderr and f"built for {torch_minor()}" in done.stderr
    # 2.1 is not 2.15.
    assert train(bundle, "--torch", fake_torch(tmp_path / "older", "2.1.0")).returncode == 2
    assert not os.path.lexists(bundle / "torch")


@pytest.mark.parametrize("flags", [["--torch"], ["--torch", "/usr"], ["--torch=/nowhere"]])
def test_what_is_no_torch_folder_is_refused_by_name(bundle, flags):  # noqa: F811
    done = train(bundle, *flags)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert "--torch" in done.stderr and flags[-1].removeprefix("--torch=") in done.stderr


# ---- The script ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--colour"], "unknown argument '--colour'"),
        (["--output"], "--output needs a path"),
        (["--build", "/usr", "--output", "bundle.tar.gz"], "/usr is no build folder"),
        (["--build", "/usr", "--output", "bundle.zip"], "bundle.zip must end in .tar.gz or .tar.xz"),
        (["--build", "/usr", "--tests"], "/usr has no tests/gpu_test"),
    ],
)
def test_bad_arguments(flags, says, tmp_path):
    done = run([REPO / "deploy" / "bundle.sh", *flags], cwd=tmp_path)
    assert done.returncode != 0 and says in done.stderr, done.stderr


@pytest.mark.nightly
def test_a_bundle_that_is_too_large_is_refused(tmp_path):
    program = "import sys, pack_bundle; pack_bundle.SIZE_MAX = 1 << 20; pack_bundle.main()"
    output = tmp_path / "bundle.tar.gz"
    done = run([sys.executable, "-c", program, BUILD, output], env={**os.environ, "PYTHONPATH": str(REPO / "deploy")})
    assert done.returncode == 1 and re.search(r"would have \d+\.\d MB and may have 1; name it .tar.xz", done.stderr), done.stderr
    assert list(pathlib.Path(tmp_path).iterdir()) == []
