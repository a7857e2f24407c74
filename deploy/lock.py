#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes deploy/requirements-*.txt anew: every package that setup.sh installs by pip, with its version and the SHA-256 of
each file that pip may take, for CPython 3.11 and 3.12 on x86_64 and aarch64. pip refuses any other file.

    python3 deploy/lock.py [LIST...]

asks pip's own resolver what it would install (nothing is downloaded but metadata). Run it after a change below, read the
difference, and run deploy/test.sh. With names of lists (requirements-book.txt) it writes those alone, and the other lists
stay as they are.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent
TORCH = re.search(r"^torch_version=(\S+)", (FOLDER / "common.sh").read_text(), re.MULTILINE).group(1)
# CUDA's headers that torch does not ask for, of the CUDA that it was built with.
CUDA = "13.0"
LISTS = {
    "requirements-torch.txt": [f"torch=={TORCH}"],
    "requirements-cuda-headers.txt": [f"nvidia-cuda-crt=={CUDA}.*", f"nvidia-cuda-cccl=={CUDA}.*"],
    "requirements-test.txt": [
        *("accelerate", "cloudpickle", "ipykernel", "numpy", "pillow", "pytest", "pytorch-lightning", "safetensors", "tensorboard"),
        "transformers",
    ],
    "requirements-book.txt": ["mkdocs-material"],
}
# Lists for an environment of their own: they have all that their packages depend on, also what other lists have.
STANDALONE = {"requirements-book.txt"}
# Debian 12 and Ubuntu 24.04; glibc 2.36 is the older one's.
PYTHONS = ("3.11", "3.12")
MACHINES = ("x86_64", "aarch64")
GLIBC_MINORS = range(36, 16, -1)


def resolve(wanted, constraints, python, machine, folder):
    """{name: (version, SHA-256)} of what pip would install there."""
    report = folder / "report.json"
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in GLIBC_MINORS] + [f"manylinux2014_{machine}"]
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--dry-run", "--ignore-installed"]
    command += ["--target", str(folder / "none"), "--report", str(report), "--only-binary", ":all:"]
    command += ["--python-version", python, *(word for name in platforms for word in ("--platform", name))]
    command += ["--constraint", str(constraints), *wanted]
    print("resolving for", python, machine, *wanted, file=sys.stderr)
    subprocess.run(command, check=True)
    found = {}
    for package in json.loads(report.read_text())["install"]:
        name = re.sub(r"[-_.]+", "-", package["metadata"]["name"]).lower()
        found[name] = (package["metadata"]["version"], package["download_info"]["archive_info"]["hashes"]["sha256"])
    return found


def read(file):
    """{name: (version, {hashes})} of a list as it stands."""
    text = (FOLDER / file).read_text()
    packages = re.findall(r"^([a-z0-9-]+)==(\S+)((?:\s+\\?\s*--hash=sha256:[0-9a-f]{64})+)", text, re.MULTILINE)
    return {name: (version, set(re.findall(r"[0-9a-f]{64}", hashes))) for name, version, hashes in packages}


def main():
    wanted_lists = sys.argv[1:] or list(LISTS)
    if unknown := set(wanted_lists) - set(LISTS):
        sys.exit(f"deploy/lock.py: no such list: {', '.join(sorted(unknown))}; the lists are {', '.join(LISTS)}")
    locked = {}  # name -> (version, {hashes}), of the lists so far
    for file, wanted in LISTS.items():
        if file not in wanted_lists:
            locked.update(read(file))
            continue
        packages = {}
        for python in PYTHONS:
            for machine in MACHINES:
                with tempfile.TemporaryDirectory() as temporary:
                    # All lists and all machines have the same versions.
                    constraints = pathlib.Path(temporary) / "constraints.txt"
                    constraints.write_text("".join(f"{name}=={version}\n" for name, (version, _) in {**locked, **packages}.items()))
                    for name, (version, digest) in resolve(wanted, constraints, python, machine, pathlib.Path(temporary)).items():
                        packages.setdefault(name, (version, set()))[1].add(digest)
        # What torch brings is not listed again for the tests: it is there.
        text = "# SPDX-License-Identifier: Apache-2.0\n# Made by deploy/lock.py. Wanted: " + ", ".join(wanted) + "\n"
        for name, (version, digests) in sorted(packages.items()):
            if name in locked and file not in STANDALONE:
                continue
            text += " \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{digest}" for digest in sorted(digests))]) + "\n"
        (FOLDER / file).write_text(text)
        locked.update(packages)


if __name__ == "__main__":
    main()
