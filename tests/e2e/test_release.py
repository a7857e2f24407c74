# SPDX-License-Identifier: Apache-2.0
"""deploy/release.sh, and that the version is written in one place. In a clone, for a release is of a commit."""

import hashlib
import re
import tarfile

import pytest
from conftest import BUILD, DDPRUN, REPO, clean_environment, run

VERSION = re.search(r"^project\(ddprun VERSION (\S+)", (REPO / "CMakeLists.txt").read_text(), re.MULTILINE)[1]


@pytest.fixture
def clone(tmp_path):
    """A repository of the tree's files as they are now, in which they are committed."""
    folder = tmp_path / "clone"
    folder.mkdir()
    listed = run(["git", "-C", REPO, "ls-files", "--cached", "--others", "--exclude-standard", "-z"])
    if listed.returncode != 0:
        pytest.skip("the tree is no git repository")
    for name in listed.stdout.split("\0"):
        if name and (REPO / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((REPO / name).read_bytes())
            (folder / name).chmod((REPO / name).stat().st_mode)
    commit(folder)
    return folder


def commit(folder):
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "-m", "all"]):
        assert run(["git", "-C", folder, *words]).returncode == 0


def release(clone, output, *kinds):
    return run([clone / "deploy" / "release.sh", "--build", BUILD, "--output", output, *kinds], env=clean_environment(), timeout=300)


def test_two_releases_of_a_commit_are_the_same(clone, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for output in (first, second):
        done = release(clone, output, "sources")
        assert done.returncode == 0, done.stderr
    assert (first / "SHA256SUMS").read_text() == (second / "SHA256SUMS").read_text()
    digest, name = (first / "SHA256SUMS").read_text().split()
    assert name == f"ddprun-{VERSION}.tar.gz" and hashlib.sha256((first / name).read_bytes()).hexdigest() == digest
    with tarfile.open(first / name) as archive:
        names = archive.getnames()
    assert {f"ddprun-{VERSION}/CMakeLists.txt", f"ddprun-{VERSION}/SECURITY.md"} <= set(names)


def test_a_tree_with_changes_is_not_released(clone, tmp_path):
    (clone / "new").touch()
    done = release(clone, tmp_path / "out", "sources")
    assert done.returncode == 1 and "not committed" in done.stderr, done.stderr


def test_a_version_without_an_entry_in_the_changelog_is_not_released(clone, tmp_path):
    path = clone / "CMakeLists.txt"
    path.write_text(path.read_text().replace(f"VERSION {VERSION} ", "VERSION 9.9.9 "))
    done = release(clone, tmp_path / "out", "sources")
    assert done.returncode == 1 and "## 9.9.9" in done.stderr, done.stderr


def test_the_version_is_that_of_cmake():
    assert run([DDPRUN, "--version"]).stdout.split() == ["ddprun", VERSION]
    places = [path for folder in ("deploy", "worker/python", "launcher", "rendezvous", "proto") for path in (REPO / folder).rglob("*")
              if path.suffix in (".py", ".sh", ".cmake", ".cc", ".h", ".txt") and f'"{VERSION}"' in path.read_text()]
    assert not places, places


@pytest.mark.parametrize(("flags", "says"), [(["--colour"], "unknown argument '--colour'"), (["--output"], "--output needs a path")])
def test_bad_arguments(flags, says):
    for script in ("release.sh", "wheel.sh", "deb.sh"):
        done = run([REPO / "deploy" / script, *flags])
        assert done.returncode == 1 and says in done.stderr, (script, done.stderr)
