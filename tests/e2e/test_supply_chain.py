# SPDX-License-Identifier: Apache-2.0
"""What deploy/ takes from the network: Python's packages by version and SHA-256, all of them, and nothing beside the lists."""

import importlib.metadata
import re

import pytest
from conftest import REPO, TORCHES
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LISTS = [*sorted((REPO / "deploy").glob("requirements-*.txt")), *sorted((REPO / "deploy" / "torch").iterdir())]
OWN = ["requirements-book.txt", "requirements-images.txt", "requirements-kubernetes.txt"]  # for environments of their own


def versions_in(path):
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", path.read_text(), re.MULTILINE))


def locked(torch):
    """{name: version} of all lists of an environment with that torch."""
    found = versions_in(REPO / "deploy" / "torch" / f"{torch}.txt")
    for name, version in versions_in(REPO / "deploy" / "requirements-test.txt").items():
        assert name not in found or torch != TORCHES[-1], f"{name} is in two lists"
        found[name] = version
    return found


def test_there_are_lists_for_all_that_is_installed():
    names = [*OWN, "requirements-test.txt", *(f"{torch}.txt" for torch in TORCHES)]
    assert [path.name for path in LISTS] == names


@pytest.mark.parametrize("name", OWN)
def test_other_environments_have_the_same_versions(name):
    others, own = locked(TORCHES[-1]), versions_in(REPO / "deploy" / name)
    assert {name: others.get(name, version) for name, version in own.items()} == own


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_each_package_has_a_version_and_whole_hashes(path):
    text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE)
    packages = re.split(r"(?<!\\)\n", text.strip())
    assert packages
    for package in packages:
        name, *hashes = re.split(r" \\\n +", package)
        assert re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", name), name
        assert hashes and all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes), package


@pytest.mark.parametrize("torch", TORCHES)
def test_a_list_of_torch_brings_that_one_and_the_headers_of_its_cuda(torch):
    versions = versions_in(REPO / "deploy" / "torch" / f"{torch}.txt")
    cuda = ".".join(versions["cuda-toolkit"].split(".")[:2])
    assert versions["torch"] == torch and versions["nvidia-cuda-crt"].startswith(f"{cuda}.") and "nvidia-cuda-cccl" in versions


def test_pip_is_called_with_hashes_and_without_dependencies_of_its_own_choice():
    text = (REPO / "deploy" / "setup.sh").read_text()
    calls = re.findall(r"^.*-m pip install.*(?:\\\n.*)*", text, re.MULTILINE)
    assert len(calls) == 1 and "--require-hashes" in calls[0] and "--no-deps" in calls[0], calls


def test_the_lists_have_all_that_their_packages_depend_on():
    """pip is told to install no others: what is missing here would be missing there."""
    here = importlib.metadata.version("torch").split("+")[0]
    versions, missing, seen = locked(here if here in TORCHES else TORCHES[-1]), set(), 0
    for name, version in versions.items():
        try:
            package = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if package.version.split("+")[0] != version:
            continue  # a user's own Python, with other versions
        seen += 1
        for text in package.requires or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                needed = canonicalize_name(requirement.name)
                if needed not in versions or not requirement.specifier.contains(versions[needed], prereleases=True):
                    missing.add(f"{name} needs {requirement}")
    assert not missing
    if not seen:
        pytest.skip("none of the listed versions is installed here")


def test_data_weights_and_sources_are_checked_by_whole_digests():
    for script in ("fetch-data.sh", "fetch-weights.sh", "wheel/prometheus.py"):
        text = (REPO / "deploy" / script).read_text()
        assert "sha256" in text and "md5" not in text
        assert re.findall(r"\b[0-9a-f]{64}\b", text), script
