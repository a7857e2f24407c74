#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the wheel from what relink.py has linked:

    pack_wheel.py BUILD_FOLDER RELINKED_FOLDER OUTPUT_FOLDER

Called by deploy/wheel.sh. The same files give the same bytes: entries are sorted and have the time of the commit
(SOURCE_DATE_EPOCH). Prints the wheel's path.
"""

import base64
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))
import pack_bundle  # noqa: E402
import sbom  # noqa: E402
from pack_bundle import fail, needed_by, output_of  # noqa: E402
from relink import SYSROOT  # noqa: E402

TAG = "py3-none-manylinux_2_31_{machine}"
MACHINES = {62: "x86_64", 183: "aarch64"}  # by the number in an ELF file (EM_X86_64, EM_AARCH64)
# Into the bin of the environment, into ddprun/bin of the package, and into ddprun/bin/torch-VERSION.
IN_BIN = ("ddprun", "ddpctl", "ddprun-rendezvous", "ddprun-stacks", "ddprun-metrics.so")
IN_PACKAGE = ("ddprun-plot",)
FOR_TORCH = ("train", "libddprun_cuda.so")
OPTIONAL = ("libddprun_cuda.so",)  # of a build without CUDA
# Libraries of the system that have no archive, but need nothing newer than the rest.
COPIED = ("libisal.so.2",)
# From glibc, the compiler, or LibTorch's side; any other library that a file needs would be missing elsewhere.
FOUND_ELSEWHERE = re.compile(
    r"(ld-linux-(x86-64|aarch64)|lib(c|m|dl|pthread|rt|gcc_s|stdc\+\+|gomp|torch_\w+|c10\w*|nccl|cudart))\.so[.\d]*$"
)
DOCUMENTS = {"launcher/ddprun.1": "man/man1/ddprun.1", "launcher/ddpctl.1": "man/man1/ddpctl.1",
             "launcher/ddprun-stacks.1": "man/man1/ddprun-stacks.1",
             "rendezvous/ddprun-rendezvous.1": "man/man1/ddprun-rendezvous.1", "worker/train.1": "man/man1/train.1",
             "launcher/ddprun.bash": "bash-completion/completions/ddprun", "launcher/_ddprun": "zsh/site-functions/_ddprun",
             "launcher/ddprun.fish": "fish/vendor_completions.d/ddprun.fish", "launcher/ddprun.tcsh": "ddprun/ddprun.tcsh"}
# pip writes its Python's path in place of `python`.
TRAIN = b"#!python\nfrom ddprun.programs import train\n\ntrain()\n"
# train starts ranks with the ddprun in the folder above its own.
BESIDE_TRAIN = b'#!/bin/sh\nexec "${DDPRUN_PROGRAM:-ddprun}" "$@"\n'

METADATA = """\
Metadata-Version: 2.4
Name: ddprun
Version: {version}
Summary: Starts, watches and restarts distributed training, with torchrun's flags and a start in milliseconds
Keywords: pytorch,torchrun,distributed,training,launcher
License-Expression: Apache-2.0
{licences}
Classifier: Environment :: Console
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C++
Classifier: Programming Language :: Python :: 3
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Requires-Python: >=3.9
{extra}Description-Content-Type: text/markdown

"""
EXTRA = """\
Provides-Extra: train
Requires-Dist: torch{torch}; extra == "train"
"""


def machine_of(path):
    """The processor that the program is for, as Python's tags name it."""
    return MACHINES[int.from_bytes(path.read_bytes()[18:20], "little")]


def programs(build, relinked):
    """({path in the wheel: path here}, [copied libraries])."""
    scripts, files = f"ddprun-{pack_bundle.project_version()}.data/scripts", {}
    torches = [f"torch-{version}" for version in pack_bundle.builds_by_torch(build)]
    for folder, source, names in (
        (scripts, relinked, IN_BIN), ("ddprun/bin", relinked, IN_PACKAGE if torches else ()),
        *((f"ddprun/bin/{torch}", relinked / torch, FOR_TORCH) for torch in torches),
    ):
        for name in names:
            if (source / name).exists():
                files[f"{folder}/{name}"] = source / name
            elif name not in OPTIONAL:
                fail(f"{source / name} is not there; build all programs and run deploy/wheel.sh again")
    copied = {}
    for path in files.values():
        for name in needed_by(path):
            if name in COPIED:
                copied[name] = pack_bundle.found_by_loader(build / "bin" / path.name)[name]
            elif not FOUND_ELSEWHERE.fullmatch(name):
                fail(f"{path} needs {name}, which other systems may lack; install the package with its archive (lib*.a)")
    return files | {f"ddprun/bin/{name}": pathlib.Path(path) for name, path in copied.items()}, copied.values()


def packages_in(relinked, copied, programs=None):
    """{(package, version): SPDX's word for how it is in these programs, by default all} of all that is not ours."""
    listed = json.loads((relinked / "archives.json").read_text())
    archives = sorted({path for name, paths in listed.items() if programs is None or name in programs for path in paths})
    packages = {package: "STATIC_LINK" for package in pack_bundle.packages_of(archives).values()}
    packages |= {package: "STATIC_LINK" for package in pack_bundle.versions_of(pack_bundle.HEADERS_ONLY).items()}
    return packages | {package: "CONTAINS" for package in pack_bundle.packages_of(list(map(os.path.realpath, copied))).values()}


def library(build):
    """{path in the wheel: (bytes, executable)} of libddprun for each version of torch, its headers and its CMake package."""
    files = {}
    with tempfile.TemporaryDirectory() as folder:
        for one in pack_bundle.builds_by_torch(build).values():
            command = ["cmake", "--install", one, "--prefix", folder, "--component", "dev"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for path in pathlib.Path(folder).rglob("*"):
            if path.is_file() and path.suffix != ".pc":
                # Where torch is on this machine is of no use elsewhere.
                data = path.read_bytes()
                if path.suffix == ".cmake":
                    data = data.replace(str(pack_bundle.torch_dir_of(build)).encode(), b"")
                files[f"ddprun/{path.relative_to(folder)}"] = (data, False)
    return files


def requirement(versions):
    """What the extra `train` asks for: any torch that there is a train for."""
    major, minor = map(int, list(versions)[-1].split("."))
    oldest = int(list(versions)[0].split(".")[1])
    without = [f"!={major}.{one}.*" for one in range(oldest, minor) if f"{major}.{one}" not in versions]
    return ",".join([f">={major}.{oldest}", f"<{major}.{minor + 1}", *without])


def information(build, relinked, copied, tag, moment):
    """{path in dist-info: bytes}, all but RECORD."""
    version, packages = pack_bundle.project_version(), packages_in(relinked, copied)
    torches = pack_bundle.builds_by_torch(build)
    files = {"licenses/LICENSE": (REPO / "LICENSE").read_bytes()}
    for package, _ in sorted(packages):
        files[f"licenses/{package}"] = pathlib.Path(f"{SYSROOT}/usr/share/doc", package, "copyright").read_bytes()
    names = sorted(name.removeprefix("licenses/") for name in files)
    extra = EXTRA.format(torch=requirement(torches)) if torches else ""
    head = METADATA.format(version=version, extra=extra, licences="\n".join(f"License-File: {name}" for name in names))
    files["METADATA"] = head.encode() + (HERE / "README.md").read_bytes()
    files["WHEEL"] = f"Wheel-Version: 1.0\nGenerator: deploy/wheel.sh\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    files["sboms/ddprun.spdx.json"] = sbom.document(version, packages, tag.rpartition("_31_")[2], moment)
    return files


def contents(build, relinked, tag, moment):
    """{path in the wheel: (bytes, executable)}."""
    version = pack_bundle.project_version()
    elf, copied = programs(build, relinked)
    files = {name: (path.read_bytes(), True) for name, path in elf.items()}
    files[f"ddprun-{version}.data/scripts/train"] = (TRAIN, True)
    files["ddprun/bin/ddprun"] = (BESIDE_TRAIN, True)
    files |= library(build)
    for path in (REPO / "worker" / "python" / "ddprun").glob("*.py"):
        files[f"ddprun/{path.name}"] = (path.read_bytes(), False)
    for source, target in DOCUMENTS.items():
        if source == "worker/train.1" and not pack_bundle.builds_by_torch(build):
            continue
        if not (build / source).exists():
            fail(f"{build / source} is not there; build all targets and run deploy/wheel.sh again")
        files[f"ddprun-{version}.data/data/share/{target}"] = ((build / source).read_bytes(), False)
    for name, data in information(build, relinked, copied, tag, moment).items():
        files[f"ddprun-{version}.dist-info/{name}"] = (data, False)
    return files


def record(files, name):
    lines = []
    for path in sorted(files):
        data = files[path][0]
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(data)}")
    return "\n".join([*lines, f"{name},,"]).encode() + b"\n"


def write(path, files, moment):
    part = path.with_suffix(".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files, key=lambda name: (".dist-info/" in name, name)):  # dist-info last, as PEP 427 advises
            data, executable = files[name]
            entry = zipfile.ZipInfo(name, time.gmtime(moment)[:6])
            entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            archive.writestr(entry, data, compresslevel=9)
    part.replace(path)


def main():
    build, relinked, folder = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
    moment, version = pack_bundle.commit_time(), pack_bundle.project_version()
    tag = TAG.format(machine=machine_of(relinked / "ddprun"))
    files = contents(build, relinked, tag, moment)
    name = f"ddprun-{version}.dist-info/RECORD"
    files[name] = (record(files, name), False)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"ddprun-{version}-{tag}.whl"
    write(path, files, moment)
    size = path.stat().st_size / 2**20
    print(f"ddprun: {path} has {size:.1f} MB", file=sys.stderr)
    print(path)


if __name__ == "__main__":
    main()
