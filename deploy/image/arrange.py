#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Arranges what a build has made in a folder as deploy/Dockerfile copies it to the root of an image:

    arrange.py launcher|train BUILD_FOLDER OUTPUT_FOLDER

The programs are linked as for the wheel (deploy/wheel/relink.py): they need the C library alone, glibc 2.31 or newer, so that
`COPY --from=ddprun-launcher /opt/ddprun /opt/ddprun` serves in most images. `launcher` has ddprun, to which ddpctl and
ddprun-rendezvous are links, ddprun-stacks and ddprun-metrics.so; `train` has train, and LibTorch as the torch wheels lay it out.
Both have the terms of what is linked in, and a list of it, programs-NAME.spdx.json (SPDX 2.3).
"""

import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "wheel")]
import pack_bundle  # noqa: E402
import pack_wheel  # noqa: E402
import sbom  # noqa: E402

OPT = pathlib.Path("opt/ddprun")
PROGRAMS = ("ddprun", "ddprun-stacks", "ddprun-metrics.so")
TRAIN = (*pack_wheel.FOR_TORCH, *pack_wheel.IN_PACKAGE)
LINKS = ("ddpctl", "ddprun-rendezvous")  # main() of ddprun looks at its name
SITE = OPT / "lib"  # as Python's site-packages: torch looks for nvidia beside itself, and train for torch


def place(source, target):
    """A copy, or another link to the file where that is possible: LibTorch's are of gigabytes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def launcher(build, linked, output):
    for name in PROGRAMS:
        place(linked / name, output / OPT / "bin" / name)
    for name in LINKS:
        (output / OPT / "bin" / name).symlink_to("ddprun")
    return []


def torch_files(torch):
    """{path below site-packages: path here} of the shared libraries, and of what says which packages they are of."""
    site, files = torch.parent, {}
    for folder in [torch / "lib", *site.glob("nvidia/*/lib")]:
        for path in folder.glob("*.so*"):
            if not path.name.startswith("libtorch_python"):
                files[str(path.relative_to(site))] = path
    for record in site.glob("*.dist-info/RECORD"):
        if any(line.split(",")[0] in files for line in record.read_text().splitlines()):
            for path in record.parent.rglob("*"):
                if path.is_file() and (path.name == "METADATA" or "licen" in str(path.relative_to(site)).lower()):
                    files[str(path.relative_to(site))] = path
    return files


def train(build, linked, output):
    version = pack_bundle.torch_version_of(build)
    programs = output / SITE / "ddprun" / "bin"
    copied = {}
    for name in pack_wheel.FOR_TORCH:
        path = linked / f"torch-{version}" / name
        if path.exists() or name not in pack_wheel.OPTIONAL:
            place(path, programs / f"torch-{version}" / name)
            found = pack_bundle.found_by_loader(build / "bin" / name)
            copied |= {one: found[one] for one in pack_bundle.needed_by(path) if one in pack_wheel.COPIED}
    place(linked / "ddprun-plot", programs / "ddprun-plot")
    for name, path in copied.items():
        place(pathlib.Path(os.path.realpath(path)), programs / name)
    (programs / "ddprun").symlink_to("../../../bin/ddprun")
    (output / OPT / "bin").mkdir(parents=True)
    (output / OPT / "bin" / "train").symlink_to(f"../lib/ddprun/bin/torch-{version}/train")
    for name, path in torch_files(pack_bundle.torch_dir_of(build)).items():
        place(path, output / SITE / name)
    return copied.values()


def main():
    parts = {"launcher": launcher, "train": train}
    if len(sys.argv) != 4 or sys.argv[1] not in parts:
        sys.exit(__doc__)
    part, build, output = sys.argv[1], *(pathlib.Path(argument).resolve() for argument in sys.argv[2:])
    linked = build / "portable"
    subprocess.run([sys.executable, HERE.parent / "wheel" / "relink.py", build, linked], check=True)
    shutil.rmtree(output, ignore_errors=True)
    copied = parts[part](build, linked, output)
    packages = pack_wheel.packages_in(linked, copied, PROGRAMS if part == "launcher" else TRAIN)
    listed = sbom.document(pack_bundle.project_version(), packages, pack_wheel.machine_of(linked / "ddprun"), pack_bundle.commit_time())
    (output / OPT / f"programs-{part}.spdx.json").write_bytes(listed)
    for package, terms in [*((one, f"/usr/share/doc/{one}/copyright") for one, _ in packages), ("LICENSE", pack_bundle.REPO / "LICENSE")]:
        (output / OPT / "licenses").mkdir(exist_ok=True)
        shutil.copyfile(terms, output / OPT / "licenses" / package)


if __name__ == "__main__":
    main()
