#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Links the programs of a build a second time, from the same object files, for older systems:

    relink.py BUILD_FOLDER OUTPUT_FOLDER

What came from shared libraries of this system comes from their archives, functions that are newer than glibc 2.31 from
older_glibc.c, and members of libstdc++ that are newer than g++ 10's from libstdc++.a. A file that still asks for more than
LIMITS is an error. Nothing is compiled but that one file. What uses LibTorch is in OUTPUT_FOLDER/torch-VERSION, also that of
the builds in BUILD_FOLDER/torch-VERSION, and looks for it beside the Python package that the wheel installs.
OUTPUT_FOLDER/archives.json lists the archives of the system that are in each. Made for Debian 12; needs ninja,
gcc, binutils and pkg-config.
"""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import prometheus

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from pack_bundle import builds_by_torch  # noqa: E402

LIMITS = {"GLIBC": (2, 31), "GLIBCXX": (3, 4, 28), "CXXABI": (1, 3, 12)}
# {name: whether it uses LibTorch}. LibTorch throws exceptions that train catches, so both must have one C++ runtime: the
# system's. The others bring their own.
PROGRAMS = {"ddprun": False, "ddpctl": False, "ddprun-rendezvous": False, "ddprun-stacks": False, "train": True,
            "ddprun-plot": False, "libddprun_cuda.so": True, "ddprun-metrics.so": False}
# Where the system's libraries are: in a folder, where the build is for another processor (deploy/aarch64/cross.sh).
SYSROOT = os.environ.get("DDPRUN_SYSROOT", "")
LIBRARIES = (f"{SYSROOT}/usr/lib/", f"{SYSROOT}/lib/")
# In the place of these is the archive of prometheus.py.
PROMETHEUS = ("prometheus-cpp-pull", "prometheus-cpp-core", "civetweb")
# Archives of the system name no others, so what these need is said here, as arguments of pkg-config.
MORE = {"libdw.a": ("libdw", "libelf", "liblzma", "zlib"), "libcairo.a": ("cairo",)}
GLIBC = ("-lc", "-ldl", "-lm", "-lpthread", "-lrt")
MORE_ARCHIVES = {"libdw.a": ("bz2",)}
# Members of libstdc++.a that g++ 10's library lacks, for programs that use the system's.
NEWER_MEMBERS = ("condition_variable.o", "floating_from_chars.o", "futex.o", "functexcept.o", "snprintf_lite.o",
                 "lt5-sstream-inst.o")


def fail(text):
    sys.exit(f"ddprun: {text}")


def output_of(*command, **options):
    return subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, check=True, text=True, **options).stdout


def archive_of(name):
    """The archive -lNAME would be, or None."""
    path = output_of("c++", f"-print-file-name=lib{name}.a").strip()
    return os.path.realpath(path) if os.path.isabs(path) else None


def as_archive(word):
    """A shared library of the system as its archive, where it has one; any other word as it is."""
    if not word.startswith(LIBRARIES) or ".so" not in os.path.basename(word):
        return word
    return archive_of(os.path.basename(word).split(".so")[0].removeprefix("lib")) or word


def needed_by_archives(archives):
    """What else must be linked: archives where there are any, as words."""
    words = []
    for archive in archives:
        name = os.path.basename(archive)
        if name in MORE:
            words += shlex.split(output_of("pkg-config", "--static", "--libs", *MORE[name]))
        words += [f"-l{other}" for other in MORE_ARCHIVES.get(name, ())]
    words = [archive_of(word[2:]) or word if word.startswith("-l") and word not in GLIBC else word for word in words]
    return list(dict.fromkeys(words))


def objects(folder):
    """Compiles older_glibc.c, takes libstdc++.a apart; {kind: path}."""
    common = ["gcc", "-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", "-c", HERE / "older_glibc.c"]
    made = {"program": folder / "older_glibc_program.o", "library": folder / "older_glibc.o", "newer": folder / "libnewer.a"}
    subprocess.run([*common, "-DPROGRAM", "-o", made["program"]], check=True)
    subprocess.run([*common, "-o", made["library"]], check=True)
    subprocess.run(["ar", "x", archive_of("stdc++"), *NEWER_MEMBERS], check=True, cwd=folder)
    made["newer"].unlink(missing_ok=True)
    subprocess.run(["ar", "rcD", made["newer"], *NEWER_MEMBERS], check=True, cwd=folder)
    return made


def link_command(build, name):
    """The words of the build's own command, for ninja's folder."""
    line = output_of("ninja", "-C", build, "-t", "commands", "-s", f"bin/{name}").splitlines()[-1]
    return shlex.split(line.removeprefix(": && ").removesuffix(" && :"))


def rpath_of(words):
    """Where LibTorch's side is, as seen from ddprun/bin/torch-VERSION: torch is beside ddprun in the folder of Python's packages."""
    folders = [folder for word in words if word.startswith("-Wl,-rpath,") for folder in word.split(",", 2)[2].split(":") if folder]
    return ["$ORIGIN/..", *("$ORIGIN/../../../" + folder.rpartition("/site-packages/")[2] for folder in folders)]


def with_prometheus(words, parts):
    """The words with prometheus-cpp's archive, where they name its libraries."""
    shared = [word for word in words if os.path.basename(word).split(".so")[0].removeprefix("lib") in PROMETHEUS]
    if not shared:
        return words
    return [*(word for word in words if word not in shared), str(prometheus.archive(parts)), archive_of("z")]


def relinked(words, output, parts, made, uses_torch):
    """The command that links `output` instead."""
    words = with_prometheus(words, parts)
    rpath = [f"-Wl,-rpath,{':'.join(rpath_of(words))}"] if uses_torch else ["-Wl,-rpath,$ORIGIN"]
    at = words.index("-o")
    words = [*words[:at], *words[at + 2 :]]
    words = [as_archive(word) for word in words if not word.startswith("-Wl,-rpath,")]
    archives = list(dict.fromkeys(word for word in words if word.startswith(LIBRARIES) and word.endswith(".a")))
    shim = made["library" if "-shared" in words else "program"]
    after = ["-Wl,--start-group", *archives, *needed_by_archives(archives), "-Wl,--end-group"]
    if uses_torch:
        after.append(str(made["newer"]))
    else:
        after += ["-static-libstdc++", "-static-libgcc"]
    # Before glibc 2.34 these are libraries of their own.
    after += ["-Wl,--no-as-needed", "-l:libpthread.so.0", "-l:libdl.so.2", "-Wl,--as-needed"]
    rpath.append(f"-Wl,-Map={parts}/{output.name}.map")
    options = [*rpath, "-Wl,--as-needed", "-Wl,--gc-sections", "-Wl,--exclude-libs,ALL", "-s"]
    return [*words, "-o", str(output), str(shim), *options, *after]


def archives_in(map_file):
    """The archives of which members are in the program, by the linker's own list.

    Those that are made here stand for libstdc++.a, and for the shared libraries of the packages whose sources they are.
    """
    found = {os.path.realpath(path) for path in re.findall(r"^(/\S+\.a)\(", map_file.read_text(), re.MULTILINE)}
    parts = str(map_file.parent)
    if f"{parts}/libnewer.a" in found:
        found.add(archive_of("stdc++"))
    if f"{parts}/libprometheus.a" in found:
        found |= {os.path.realpath(output_of("c++", f"-print-file-name=lib{name}.so").strip()) for name in PROMETHEUS}
    return found


def too_new(path):
    """[symbol@version] that it asks for and LIMITS excludes."""
    asked = output_of("objdump", "-p", path).partition("Version References:")[2] + output_of("objdump", "-T", path)
    excluded = set()
    for kind, number, symbol in re.findall(r"\b(GLIBC|GLIBCXX|CXXABI)_(\d[\d.]*)\)?(?: +(\S+))?$", asked, re.MULTILINE):
        if tuple(map(int, number.split("."))) > LIMITS[kind]:
            excluded.add(f"{symbol}@{kind}_{number}")
    return sorted(excluded)


def link(build, name, folder, parts, made):
    """Links one program into `folder`; returns the archives that are in it."""
    output = folder / name
    folder.mkdir(exist_ok=True)
    if subprocess.run(relinked(link_command(build, name), output, parts, made, PROGRAMS[name]), cwd=build).returncode != 0:
        fail(f"{name} could not be linked; the lines above say why")
    if wrong := too_new(output):
        fail(f"{name} asks for {', '.join(wrong)}, which is newer than {LIMITS}; add it to {HERE / 'older_glibc.c'}, or its "
             f"member of libstdc++.a to NEWER_MEMBERS in {__file__}")
    return archives_in(parts / f"{name}.map")


def main():
    build, folder = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    parts = folder / "parts"
    parts.mkdir(parents=True, exist_ok=True)
    made, archives = objects(parts), {}
    for name, uses_torch in PROGRAMS.items():
        builds = builds_by_torch(build) if uses_torch else {None: build}
        for version, one in builds.items():
            if (one / "bin" / name).exists():
                found = link(one, name, folder / f"torch-{version}" if version else folder, parts, made)
                archives.setdefault(name, set()).update(found)
    ours = (f"{build}/", f"{folder}/")
    listed = {name: sorted(path for path in paths if not path.startswith(ours)) for name, paths in archives.items()}
    (folder / "archives.json").write_text(json.dumps(listed, indent=1))


if __name__ == "__main__":
    main()
