# SPDX-License-Identifier: Apache-2.0
"""Starts the programs that a wheel of ddprun brings: `python -m ddprun`, and `train`, for which it finds LibTorch.

In a wheel `bin/torch-VERSION/` of this package has the training program for each version of torch, and `bin/` what that expects in
the folder above its own; ddprun and the other programs are in the bin of the environment, where nothing has to be found for them.
"""

import glob
import importlib.util
import os
import re
import shutil
import sys
import sysconfig

HERE = os.path.dirname(os.path.abspath(__file__))
NOT_FOUND = "the program ddprun is neither beside this Python nor in PATH; install ddprun's wheel or package"


def _fail(program, text):
    sys.stderr.write(f"{program}: {text}\n")
    sys.exit(2)


def _become(path, arguments):
    sys.stdout.flush()
    os.execv(path, [path, *arguments])


def find_program(name):
    """The path of a program that came with this package, or of one in PATH; None if there is none."""
    # The last one is that of `pip install --target`.
    for folder in (sysconfig.get_path("scripts"), os.path.join(os.path.dirname(HERE), "bin")):
        if os.access(os.path.join(folder, name), os.X_OK):
            return os.path.join(folder, name)
    # Where `pip install --user` or --prefix has put it.
    from importlib import metadata

    try:
        files = metadata.files("ddprun") or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        path = str(file.locate())
        if file.name == name and os.path.basename(os.path.dirname(path)) == "bin" and HERE not in os.path.realpath(path):
            return os.path.realpath(path)
    return shutil.which(name)


def ddprun():
    path = find_program("ddprun")
    if path is None:
        _fail("ddprun", NOT_FOUND)
    _become(path, sys.argv[1:])


def _version_of(folder):
    """The version of the torch package in the folder; None if it is none."""
    if not os.path.exists(os.path.join(folder, "lib", "libtorch_cpu.so")):
        return None
    try:
        with open(os.path.join(folder, "version.py"), encoding="utf-8") as file:
            found = re.search(r"^__version__ *= *['\"]([^'\"]*)", file.read(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else "unknown"


def _programs():
    """{version of torch: its train}, oldest first."""
    found = {}
    for folder in glob.glob(os.path.join(glob.escape(HERE), "bin", "torch-*")):
        found[folder.rpartition("-")[2]] = os.path.join(folder, "train")
    return dict(sorted(found.items(), key=lambda pair: [int(number) for number in pair[0].split(".")]))


def _install(programs):
    newest = list(programs)[-1]
    return f"install torch {newest} (python3 -m pip install 'torch=={newest}.*')"


def _find_torch(arguments, programs):
    """(folder, who named it), and takes --torch FOLDER from the arguments. Does not import torch, which takes seconds."""
    if arguments and arguments[0] == "--torch":
        if len(arguments) < 2:
            _fail("train", "--torch needs the folder of the torch package, for instance /usr/lib/python3/dist-packages/torch")
        folder = arguments[1]
        del arguments[:2]
        return folder, "--torch"
    if arguments and arguments[0].startswith("--torch="):
        return arguments.pop(0).partition("=")[2], "--torch"
    if os.environ.get("DDPRUN_TORCH"):
        return os.environ["DDPRUN_TORCH"], "DDPRUN_TORCH"
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        _fail("train", f"LibTorch was not found: {sys.executable} has no package torch; {_install(programs)}, or name the folder of another: "
                       "--torch FOLDER as the first argument, or DDPRUN_TORCH=FOLDER")
    return list(spec.submodule_search_locations)[0], sys.executable


def _library_folders(torch):
    beside = os.path.join(os.path.dirname(torch), "nvidia")
    others = sorted(os.listdir(beside)) if os.path.isdir(beside) else []
    folders = [os.path.join(torch, "lib"), *(os.path.join(beside, name, "lib") for name in others)]
    return [folder for folder in folders if os.path.isdir(folder)]


def train():
    arguments = sys.argv[1:]
    programs = _programs()
    if not programs:
        _fail("train", f"{HERE} has no train: of ddprun's wheels only that for x86-64 brings it; build train from the sources")
    torch, source = _find_torch(arguments, programs)
    version = _version_of(torch)
    if version is None:
        _fail("train", f"{source} names {torch}, which is not the folder of a torch package (it has no lib/libtorch_cpu.so); "
                       "name one that is")
    program = programs.get(".".join(version.split(".")[:2]))
    if program is None:
        _fail("train", f"the torch in {torch} ({source}) is version {version}, and this program was built for {', '.join(programs)}; "
                       f"{_install(programs)}, or name the folder of another: --torch FOLDER or DDPRUN_TORCH=FOLDER")
    # Beside this package train finds it by itself (RUNPATH), whatever the version of Python in the path.
    if os.path.realpath(torch) != os.path.realpath(os.path.join(HERE, "..", "torch")):
        known = os.environ.get("LD_LIBRARY_PATH")
        os.environ["LD_LIBRARY_PATH"] = ":".join([*([known] if known else []), *_library_folders(os.path.realpath(torch))])
    # bin/ddprun of this package, which train starts ranks with, leads there.
    os.environ["DDPRUN_PROGRAM"] = find_program("ddprun") or "ddprun"
    _become(program, arguments)
