# SPDX-License-Identifier: Apache-2.0
"""Packs what a build has made, and the libraries that it needs and that are neither LibTorch's nor the C and C++ runtime's.

    pack_bundle.py BUILD_FOLDER OUTPUT [--ending .tar.gz|.tar.xz] [--with-fashion-mnist]
    pack_bundle.py --builds BUILD_FOLDER        prints which versions of torch there are builds for: VERSION, tab, folder

Called by deploy/bundle.sh, which says what is in it. Nothing is built here. The libraries are those that the loader finds
for the programs (ldd), walked from DT_NEEDED to DT_NEEDED, so that what only LibTorch asks for stays out. Needs ldd, objdump
and strip (binutils), patchelf, and, for the list of packages, dpkg-query.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

REPO = pathlib.Path(__file__).resolve().parents[1]
SIZE_MAX = 64 << 20
# Where each program goes. train is opened by the script bin/train (deploy/bundle/train), which finds LibTorch for it; what
# train looks for in the folder above its own is there by a link.
IN_BIN = ("ddprun", "ddpctl", "ddprun-rendezvous", "ddprun-stacks", "ddprun-metrics.so")
IN_LIBEXEC = ("ddprun-plot",)
FOR_TORCH = ("train", "libddprun_cuda.so", "gpu_test")  # in libexec/torch-VERSION
OPTIONAL = ("libddprun_cuda.so", "gpu_test")  # of a build without CUDA, or without tests
LINKS = {"libexec/ddprun": "../bin/ddprun"}
# Opened by name (launcher/placement/hwloc_topology.cc), so no DT_NEEDED leads to it.
OPENED = ("libhwloc.so.15",)
# glibc's and the compiler's: newer ones than those of the build serve, and a second one in a process would not.
RUNTIME = re.compile(
    r"(ld-linux[-\w]*|linux-vdso|libc|libm|libdl|libpthread|librt|libutil|libresolv|libanl|libstdc\+\+|libgcc_s)\.so[.\d]*$"
)
HEADERS_ONLY = ("libcli11-dev", "nlohmann-json3-dev")
SCRIPTS = ("tests/gpu/*", "tests/bench/*.py", "tests/e2e/python_*.py", "tests/e2e/parity_ddp.py")
COMPRESSORS = {".gz": ["gzip", "-9n"], ".xz": ["xz", "-9", "-T0"]}  # by the ending of the output; xz takes a third less
FASHION_MNIST_PACKAGE = "dataset-fashion-mnist"
FASHION_MNIST = pathlib.Path("/usr/share/datasets/fashion-mnist")


def fail(text):
    sys.exit(f"ddprun: {text}")


def output_of(*command):
    return subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, check=True, text=True, errors="replace").stdout


# ---- What a file needs -------------------------------------------------------------------------------------------------


def needed_by(path):
    """The names that its dynamic section asks for, in order."""
    return re.findall(r"^\s*NEEDED\s+(\S+)", output_of("objdump", "-p", path), re.MULTILINE)


def found_by_loader(path):
    """{name: path} of all that the loader would map for it; a name that it does not find is None."""
    lines = output_of("ldd", path)
    found = dict(re.findall(r"^\s*(\S+) => (/\S+)", lines, re.MULTILINE))
    return {**found, **{name: None for name in re.findall(r"^\s*(\S+) => not found", lines, re.MULTILINE)}}


def newest_versions(path):
    """{"GLIBC": (2, 34), ...}: the newest symbol version of each kind that it asks the runtime for."""
    newest = {}
    asked = output_of("objdump", "-p", path).partition("Version References:")[2]
    for kind, number in re.findall(r"\b(GLIBC|GLIBCXX|CXXABI|GCC)_(\d[\d.]*)$", asked, re.MULTILINE):
        version = tuple(map(int, number.split(".")))
        newest[kind] = max(newest.get(kind, version), version)
    return newest


def libraries_for(programs, torch_dir):
    """({name: path} to pack, {folder of LibTorch's side relative to `torch_dir`}) for the files `programs`.

    What lies in the folder that torch_dir lies in (site-packages: torch, nvidia) is LibTorch's side.
    """
    packed, torch_side = {}, set()
    beside_torch = os.path.realpath(torch_dir.parent) + os.sep
    todo = list(programs)
    while todo:
        path = todo.pop()
        found = found_by_loader(path)
        for name in needed_by(path):
            if RUNTIME.match(name) or name in packed:
                continue
            if not found.get(name):
                fail(f"{path} needs {name}, which is not on this machine; install its package and build again")
            real = os.path.realpath(found[name])
            if real.startswith(beside_torch):
                torch_side.add(os.path.relpath(os.path.dirname(real), os.path.realpath(torch_dir)))
            else:
                packed[name] = real
                todo.append(real)
    return packed, torch_side


def opened_libraries():
    """{name: path} of those that a program opens by name, where they are installed."""
    known = output_of("/sbin/ldconfig", "-p")
    found = {}
    for name in OPENED:
        match = re.search(rf"^\s*{re.escape(name)} .*=> (/\S+)", known, re.MULTILINE)
        if match:
            found[name] = os.path.realpath(match[1])
    return found


# ---- Where it comes from -----------------------------------------------------------------------------------------------


def packages_of(paths):
    """{path: (package, version)} of those that brought the files."""
    # /lib is /usr/lib, and a package may name either.
    named = {other: path for path in paths for other in (path, path.removeprefix("/usr"), f"/usr{path}")}
    found = subprocess.run(["dpkg-query", "-S", *named], capture_output=True, text=True).stdout
    packages = {named[path]: package for package, path in re.findall(r"^([^\s:,]+).*: (/\S+)$", found, re.MULTILINE) if path in named}
    unknown = sorted(set(paths) - set(packages))
    if unknown:
        fail(f"no package of this system has {unknown[0]}, so its terms are not known; install it from one and build again")
    versions = versions_of(set(packages.values()))
    return {path: (package, versions[package]) for path, package in packages.items()}


def versions_of(packages):
    told = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *sorted(packages)], capture_output=True, text=True)
    return dict(line.split() for line in told.stdout.splitlines())


def archives_in(build):
    """The static libraries of the system that the packed programs were linked with."""
    names = [f"bin/{name}" for name in (*IN_BIN, *IN_LIBEXEC, *FOR_TORCH) if (build / "bin" / name).exists()]
    names += [name for name in ("tests/gpu_test",) if (build / name).exists()]
    commands = output_of("cmake", "--build", build, "--", "-t", "commands", "-s", *names)
    return sorted(set(re.findall(r"/usr/lib\S+\.a\b", commands)))


def write_licences(folder, build, libraries, more):
    """LICENSE, LIBRARIES.txt and licenses/: what of other people is in the bundle, and on which terms.

    more: [(where in the bundle, package)] of what is neither a library nor linked in.
    """
    shutil.copy(REPO / "LICENSE", folder / "LICENSE")
    if shutil.which("dpkg-query") is None:
        fail("dpkg-query is not here, so the libraries' packages and terms cannot be named; make the bundle on Debian or Ubuntu")
    archives = archives_in(build)
    known = packages_of([*libraries.values(), *archives])
    named = {(f"lib/{name}", *known[path]) for name, path in libraries.items()}
    named |= {("linked in", *known[path]) for path in archives}
    named |= {("headers", *pair) for pair in versions_of(HEADERS_ONLY).items()}
    named |= {(where, *pair) for where, package in more for pair in versions_of([package]).items()}
    lines = ["What of other packages is in this bundle; their terms are in licenses/PACKAGE. ddprun's own are in LICENSE.", ""]
    lines += [f"{where:32} {package} {version}" for where, package, version in sorted(named)]
    (folder / "LIBRARIES.txt").write_text("\n".join(lines) + "\n")
    (folder / "licenses").mkdir()
    for package in sorted({package for _, package, _ in named}):
        terms = pathlib.Path("/usr/share/doc") / package / "copyright"
        if not terms.exists():
            fail(f"the terms of {package} are not in {terms}; install that package's documentation and try again")
        shutil.copyfile(terms, folder / "licenses" / package)


# ---- The folder --------------------------------------------------------------------------------------------------------


def place(source, target, rpath):
    """A copy without debug information, which looks for its libraries in `rpath` and nowhere of the build machine's."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    target.chmod(0o755)
    subprocess.run(["strip", "--strip-unneeded", str(target)], check=True)
    subprocess.run(["patchelf", "--set-rpath", ":".join(rpath), str(target)], check=True)


def place_programs(folder, build, torch_dir):
    """Copies them, and all their libraries; returns {name: path} of the libraries."""
    for_torch = f"libexec/torch-{torch_version_of(build)}"
    sources = {f"bin/{name}": build / "bin" / name for name in IN_BIN}
    sources |= {f"libexec/{name}": build / "bin" / name for name in IN_LIBEXEC}
    sources |= {f"{for_torch}/{name}": build / ("tests" if name == "gpu_test" else "bin") / name for name in FOR_TORCH}
    for target, source in list(sources.items()):
        if not source.exists():
            if source.name not in OPTIONAL:
                fail(f"{source} is not built; run deploy/bundle.sh without --build, or build it")
            del sources[target]
    libraries, torch_side = libraries_for(sources.values(), torch_dir)
    opened = opened_libraries()
    libraries |= opened | libraries_for(opened.values(), torch_dir)[0]
    # Not made shorter: `torch` is a link, and `torch/..` is where it leads to.
    torch = [f"$ORIGIN/../../torch/{part}" for part in sorted(torch_side, reverse=True)]
    for target, source in sources.items():
        rpath = ["$ORIGIN/../../lib", *torch] if target.startswith(for_torch) else ["$ORIGIN/../lib"]
        place(source, folder / target, rpath)
    for name, path in libraries.items():
        place(path, folder / "lib" / name, ["$ORIGIN"])
    for link, leads_to in LINKS.items():
        (folder / link).symlink_to(leads_to)
    return libraries


def copy_scripts(folder):
    for pattern in SCRIPTS:
        for source in sorted(REPO.glob(pattern)):
            if source.suffix in (".py", ".sh", ".json"):
                target = folder / source.relative_to(REPO)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def describe(folder, torch_version):
    """bundle.json: what a program may want to know of the bundle."""
    newest = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and is_elf(path):
            for kind, version in newest_versions(path).items():
                newest[kind] = max(newest.get(kind, version), version)
    commit = subprocess.run(["git", "-C", str(REPO), "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    facts = {
        "version": project_version(),
        "commit": commit or None,
        "torch": torch_version,
        "needs": {kind: ".".join(map(str, version)) for kind, version in sorted(newest.items())},
    }
    (folder / "bundle.json").write_text(json.dumps(facts, indent=2) + "\n")
    return facts


def project_version():
    return re.search(r"^project\(ddprun VERSION (\S+)", (REPO / "CMakeLists.txt").read_text(), re.MULTILINE)[1]


def commit_time():
    """The time that packed files have, so that one commit gives the same bytes; 1980, the first of a zip file, without git."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    done = subprocess.run(["git", "-C", str(REPO), "log", "-1", "--format=%ct"], capture_output=True, text=True)
    return int(done.stdout) if done.returncode == 0 else 315532800


def torch_dir_of(build):
    cache = (build / "CMakeCache.txt").read_text() if (build / "CMakeCache.txt").exists() else ""
    match = re.search(r"^DDPRUN_TORCH_DIR:\w+=(.+)$", cache, re.MULTILINE)
    if not match:
        fail(f"{build} is no build folder of ddprun with the training program; run deploy/bundle.sh without --build")
    return pathlib.Path(match[1])


def torch_version_of(build):
    """Major and minor: C++ has no stable interface from one to another."""
    text = (torch_dir_of(build) / "version.py").read_text()
    return re.search(r"^__version__ *= *['\"](\d+\.\d+)", text, re.MULTILINE)[1]


def builds_by_torch(build):
    """{version of torch: build folder}, oldest first: this one, and those for other versions in it (common.sh: build_every_torch)."""
    found = {torch_version_of(folder): folder for folder in [*build.glob("torch-*"), build] if (folder / "bin" / "train").exists()}
    return dict(sorted(found.items(), key=lambda pair: [int(number) for number in pair[0].split(".")]))


def make_folder(folder, build, with_fashion_mnist):
    torch_dir = torch_dir_of(build)
    folder.mkdir(parents=True)
    libraries = place_programs(folder, build, torch_dir)
    write_licences(folder, build, libraries, [("data/fashion-mnist", FASHION_MNIST_PACKAGE)] if with_fashion_mnist else [])
    copy_scripts(folder)
    facts = describe(folder, torch_version_of(build))
    shutil.copy(REPO / "deploy" / "bundle" / "train", folder / "bin" / "train")
    (folder / "bin" / "train").chmod(0o755)
    readme = (REPO / "deploy" / "bundle" / "README.md").read_text()
    for name, value in {**facts, "glibc": facts["needs"]["GLIBC"]}.items():
        readme = readme.replace(f"@{name}@", str(value))
    (folder / "README.md").write_text(readme)
    shutil.copytree(REPO / "deploy" / "configs", folder / "configs")
    shutil.copy(REPO / "deploy" / "config.yaml", folder / "configs" / "config.yaml")
    if with_fashion_mnist:
        if not FASHION_MNIST.is_dir():
            fail(f"{FASHION_MNIST} is not there; install {FASHION_MNIST_PACKAGE}, or leave --with-fashion-mnist out")
        (folder / "data" / "fashion-mnist").mkdir(parents=True)
        for images in FASHION_MNIST.glob("*.gz"):
            shutil.copy(images, folder / "data" / "fashion-mnist")


def main():
    if sys.argv[1:2] == ["--builds"]:
        for version, folder in builds_by_torch(pathlib.Path(sys.argv[2]).resolve()).items():
            print(version, folder, sep="\t")
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path, help="the file; or a folder, where it gets its name")
    parser.add_argument("--ending", choices=[f".tar{one}" for one in COMPRESSORS], default=".tar.gz", help="of a file in a folder")
    parser.add_argument("--with-fashion-mnist", action="store_true")
    options = parser.parse_args()
    for program in ("patchelf", "strip", "objdump", "ldd"):
        shutil.which(program) or fail(f"{program} is not installed; deploy/setup.sh installs what deploy/packages.txt names")
    is_folder = options.output.is_dir()
    if not is_folder and options.output.suffix not in COMPRESSORS:
        fail(f"{options.output} must end in .tar.gz or .tar.xz, which says how it is compressed")
    build = options.build.resolve()
    name = f"ddprun-{project_version()}-linux-{os.uname().machine}-torch{torch_version_of(build)}"
    output = (options.output / f"{name}{options.ending}" if is_folder else options.output).resolve()
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ddprun-bundle-") as work:
        make_folder(pathlib.Path(work) / name, build, options.with_fashion_mnist)
        part = output.with_name(f".{output.name}.part")
        with open(part, "wb") as file:
            archive = subprocess.Popen(["tar", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", f"--mtime=@{commit_time()}",
                                        "--mode=u+rw,go+r-w,a+X", "-C", work, "-c", name], stdout=subprocess.PIPE)
            subprocess.run(COMPRESSORS[output.suffix], stdin=archive.stdout, stdout=file, check=True)
            if archive.wait() != 0:
                fail("tar failed; the line above says why")
        size = part.stat().st_size
        if size > SIZE_MAX:
            part.unlink()
            smaller = "leave --with-fashion-mnist out" if options.with_fashion_mnist else "pack a build without --tests"
            if output.suffix != ".xz":
                smaller = f"name it .tar.xz, which takes a third less, or {smaller}"
            fail(f"{output.name} would have {size / 2**20:.1f} MB and may have {SIZE_MAX >> 20}; {smaller}")
        part.replace(output)
    print(f"ddprun: {output} has {size / 2**20:.1f} MB of at most {SIZE_MAX >> 20}", file=sys.stderr)


if __name__ == "__main__":
    main()
