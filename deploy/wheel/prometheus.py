# SPDX-License-Identifier: Apache-2.0
"""The archive of prometheus-cpp and its web server, of which Debian has shared libraries alone: compiled from Debian's sources
of the versions whose headers the build has used. They are fetched once, into the cache of deploy/setup.sh."""

import hashlib
import os
import pathlib
import subprocess
import sys
import tarfile
import urllib.request

MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
# {file of the mirror: SHA-256}
SOURCES = {
    "pool/main/p/prometheus-cpp/prometheus-cpp_1.0.1.orig.tar.gz": "593e028d401d3298eada804d252bc38d8cab3ea1c9e88bcd72095281f85e6d16",
    "pool/main/c/civetweb/civetweb_1.15+dfsg.orig.tar.xz": "ec372e9737bc820118bbb735f46a07d41f795814ca0f38bc6e67048e7a460f33",
}
FILES = ("prometheus-cpp-*/core/src/*.cc", "prometheus-cpp-*/core/src/detail/*.cc", "prometheus-cpp-*/pull/src/*.cc",
         "civetweb-*/src/CivetServer.cpp", "civetweb-*/src/civetweb.c")
FLAGS = ["-O2", "-fPIC", "-fvisibility=hidden", "-w", "-DNDEBUG", "-DHAVE_ZLIB", "-DUSE_IPV6", "-DNO_SSL", "-DNO_CGI",
         "-D__DATE__=\"\"", "-D__TIME__=\"\""]  # the same bytes every day


def fail(text):
    sys.exit(f"ddprun: {text}")


def is_good(path, digest):
    return path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == digest


def fetched(name, digest):
    """The path of a source file in the cache."""
    default = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"), "ddprun")
    path = pathlib.Path(os.environ.get("DDPRUN_CACHE_DIR", default), "sources", os.path.basename(name))
    if is_good(path, digest):
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with urllib.request.urlopen(f"{MIRROR}/{name}", timeout=60) as answer:
            part.write_bytes(answer.read())
    except OSError as error:
        fail(f"{MIRROR}/{name} could not be fetched ({error}); check the network, name a mirror in DEBIAN_MIRROR, or put it at {path}")
    if not is_good(part, digest):
        part.unlink()
        fail(f"what came from {MIRROR}/{name} is damaged (its sha256 is not {digest}); try again later, or put it at {path}")
    part.replace(path)
    return path


def archive(folder):
    """Makes libprometheus.a in the folder, if it is not there; its path."""
    made = folder / "libprometheus.a"
    if made.exists():
        return made
    for name, digest in SOURCES.items():
        with tarfile.open(fetched(name, digest)) as sources:
            sources.extractall(folder)
    (prometheus,), (civetweb,) = folder.glob("prometheus-cpp-*"), folder.glob("civetweb-*")
    include = [f"-I{path}" for path in (prometheus / "core" / "include", prometheus / "pull" / "include", civetweb / "include")]
    commands = []
    for pattern in FILES:
        for path in sorted(folder.glob(pattern)):
            compiler = ["gcc"] if path.suffix == ".c" else ["g++", "-std=c++17"]
            commands.append([*compiler, *FLAGS, *include, "-c", str(path), "-o", str(folder / f"{path.stem}.prometheus.o")])
    for command in commands:
        if subprocess.run(command).returncode != 0:
            fail(f"{command[-3]} could not be compiled; the lines above say why")
    subprocess.run(["ar", "rcD", f"{made}.part", *(command[-1] for command in commands)], check=True)
    os.replace(f"{made}.part", made)
    return made


if __name__ == "__main__":  # deploy/setup.sh --test: the tests need no network then
    for source, sum_of_it in SOURCES.items():
        fetched(source, sum_of_it)
