# SPDX-License-Identifier: Apache-2.0
"""deploy/wheel.sh aarch64: cross-built on x86-64, its files by what readelf says, its programs under qemu-user. What they start runs
on this machine's processor, since qemu-user is no kernel for aarch64."""

import os
import pathlib
import re
import sys
import urllib.request
import zipfile

import pytest
from conftest import DDPRUN, REPO, clean_environment, free_port, kept_cache, run, start, wait_for

CACHE = pathlib.Path(os.environ.get("DDPRUN_CACHE_DIR") or os.path.expanduser("~/.cache/ddprun"))
ROOT = CACHE / "aarch64"
QEMU = [ROOT / "usr" / "bin" / "qemu-aarch64-static", "-L", ROOT]
PROGRAMS = ("ddprun", "ddpctl", "ddprun-rendezvous", "ddprun-stacks")
NEWEST_GLIBC = (2, 31)  # of Debian 11, as the wheel of x86-64
PAGE_BYTES = 64 << 10  # of kernels for Grace
# Programs, each with the suites that are left out: they start processes or examine this one, whose program is qemu's here.
UNIT_TESTS = {
    "unit_proto": "",
    "unit_rendezvous": "",
    "unit_launcher": "FaultInjector.*:ForkServer*.*:HandledSignalTest.*:RoundStartTest.*:SparePoolTest.*:StuckProcessTest.*",
}
PASSING_MIN = {"unit_proto": 60, "unit_rendezvous": 450, "unit_launcher": 850}
OTHER_LIBRARIES = re.compile(r"(lib(c|m|dl|pthread|rt)|ld-linux-aarch64)\.so\.\d$")

pytestmark = [
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="the wheel is for x86-64"),
    pytest.mark.skipif("VERSION_CODENAME=bookworm" not in pathlib.Path("/etc/os-release").read_text(), reason="the wheel is made on Debian 12"),
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Builds in build/aarch64, as a user would."""
    env = clean_environment(**kept_cache())
    done = run([REPO / "deploy" / "wheel.sh", "--output", tmp_path_factory.mktemp("wheel"), "aarch64"], env=env, timeout=2 * 3600)
    assert done.returncode == 0, done.stderr
    return pathlib.Path(done.stdout.strip().splitlines()[-1])


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The folder that pip installs it into; for this machine pip would refuse it."""
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--only-binary", ":all:"]
    done = run([*command, "--platform", "manylinux_2_31_aarch64", "--target", folder, wheel])
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def command(installed):
    """The words that run a program of the wheel here."""
    return lambda name, *arguments: [*QEMU, installed / "bin" / name, *arguments]


def test_pip_takes_the_wheel_for_aarch64_alone(wheel):
    assert wheel.name.endswith("-py3-none-manylinux_2_31_aarch64.whl")
    refused = run([sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--dry-run", wheel])
    assert refused.returncode != 0 and "not a supported wheel on this platform" in refused.stderr, refused
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (path,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        assert b"Requires-Dist" not in archive.read(path) and b"Provides-Extra" not in archive.read(path)
        (path,) = [name for name in names if name.endswith("sboms/ddprun.spdx.json")]
        assert b"arch=arm64" in archive.read(path) and b"amd64" not in archive.read(path)


def test_each_file_is_for_aarch64_with_an_old_glibc_and_large_pages(installed):
    files = [path for path in installed.rglob("*") if path.is_file() and path.open("rb").read(4) == b"\x7fELF"]
    assert {path.name for path in files} == {*PROGRAMS, "ddprun-metrics.so"}
    for path in files:
        text = run(["readelf", "-h", "-l", "-d", "-V", "-W", path]).stdout
        assert re.search(r"Machine: +AArch64", text), path
        versions = re.findall(r"Name: GLIBC_(\d[\d.]*)", text)
        assert versions and all(tuple(map(int, version.split("."))) <= NEWEST_GLIBC for version in versions), (path, versions)
        assert "GLIBCXX" not in text, path
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", text)
        assert needed and all(OTHER_LIBRARIES.match(name) for name in needed), (path, needed)
        alignments = re.findall(r"^ +LOAD .* (0x[0-9a-f]+)$", text, re.MULTILINE)
        assert alignments and all(int(number, 16) >= PAGE_BYTES for number in alignments), (path, alignments)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_says_its_version_and_help(command, name):
    version = re.search(r"project\(ddprun VERSION (\S+)", (REPO / "CMakeLists.txt").read_text())[1]
    if name != "ddprun-stacks":  # which is for ddprun alone
        done = run(command(name, "--version"))
        assert done.returncode == 0 and version in done.stdout, done
    done = run(command(name, "--help"))
    assert done.returncode == 0 and name in done.stdout, done


def test_two_workers(command):
    done = run(command("ddprun", "--standalone", "--nproc-per-node", 2, "/bin/sh", "-c", "echo rank $RANK of $WORLD_SIZE"))
    assert done.returncode == 0 and sorted(re.findall(r"rank \d of 2", done.stdout)) == ["rank 0 of 2", "rank 1 of 2"], done


def test_a_worker_that_fails_is_the_verdict(command):
    done = run(command("ddprun", "--standalone", "--nproc-per-node", 2, "/bin/sh", "-c", '[ "$RANK" = 0 ] || exit 7; exec sleep 60'))
    assert done.returncode == 7 and "rank 1" in done.stderr, done


def page_of(url):
    """None if nobody listens there yet: the module is loaded after the service listens, which takes seconds under qemu."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.read()
    except OSError:
        return None


def test_a_service_for_aarch64_serves_nodes_of_this_machine(command, tmp_path):
    """The same messages over TLS, whatever the processor; with the journal and the metrics' module."""
    port, metrics = free_port(), free_port()
    service = start(command("ddprun-rendezvous", "--port", port, "--journal", tmp_path / "journal", "--metrics-port", metrics))
    try:
        flags = ["--nnodes", 2, "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "mixed"]
        nodes = [start([DDPRUN, *flags, "/bin/sh", "-c", "echo rank $RANK of $WORLD_SIZE"]) for _ in range(2)]
        for node in nodes:
            out, err = node.communicate(timeout=120)
            assert node.returncode == 0 and re.search(r"rank [01] of 2", out), err
        page = wait_for("the page of metrics", lambda: page_of(f"http://127.0.0.1:{metrics}/metrics"))
        assert b"ddprun_build_info" in page
    finally:
        service.terminate()
        service.communicate(timeout=60)


def test_train_is_not_in_it_and_says_so(installed):
    script = "import sys; sys.argv = ['train']; from ddprun.programs import train; train()"
    done = run([sys.executable, "-c", script], env=clean_environment(PYTHONPATH=str(installed)))
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done
    assert "has no train" in done.stderr and "only that for x86-64" in done.stderr, done.stderr


def test_unit_tests_pass_under_qemu(wheel):
    """What is only compiled for aarch64 shows nothing of its bytes and signs."""
    del wheel  # its build has what these link
    script = '. deploy/common.sh; . deploy/aarch64/cross.sh; build_folder=$repo/build/aarch64; build_for_aarch64 ON "$@"'
    env = clean_environment(**kept_cache())
    built = run(["bash", "-euc", script, "-", *UNIT_TESTS], env=env, cwd=REPO, timeout=2 * 3600)
    assert built.returncode == 0, built.stdout[-4000:] + built.stderr
    for name, left_out in UNIT_TESTS.items():
        done = run([*QEMU, REPO / "build" / "aarch64" / "tests" / name, "--gtest_brief=1", f"--gtest_filter=-{left_out}"], timeout=1800)
        passed = re.search(r"\[  PASSED  \] (\d+) tests", done.stdout)
        assert done.returncode == 0 and int(passed[1]) >= PASSING_MIN[name], (name, done.stdout[-4000:])
