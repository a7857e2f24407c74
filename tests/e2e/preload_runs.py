# SPDX-License-Identifier: Apache-2.0
"""Runs of Python programs whose workers are forked (--preload), for the tests of it."""

import contextlib
import os
import pathlib

import pytest
from conftest import DDPRUN, PYTHON, agent_of, clean_environment, run, wait_for

HERE = pathlib.Path(__file__).resolve().parent
COLD, FORKED = [], ["--preload", "counted"]


@pytest.fixture
def folder(tmp_path):
    """With the module `counted`, which notes the process that imports it."""
    (tmp_path / "counted.py").write_text(
        "import json, os, pathlib\n"
        "with open(pathlib.Path(__file__).parent / 'imports', 'a') as file:\n"
        "    file.write(f'{os.getpid()}\\n')\n"
    )
    return tmp_path


def imports(folder):
    path = folder / "imports"
    return path.read_text().split() if path.exists() else []


def environment(folder, **more):
    return clean_environment(PYTHONPATH=os.pathsep.join([str(folder), str(HERE), PYTHON]), **more)


def ddprun(folder, *words, workers=1, timeout=120, **variables):
    command = [DDPRUN, "--standalone", "--nproc-per-node", workers, *words]
    return run(command, timeout=timeout, env=environment(folder, **variables), cwd=folder)


def children_of(pid):
    lists = pathlib.Path(f"/proc/{pid}/task").glob("*/children")
    return {int(child) for path in lists for child in path.read_text().split()}


def server_of(warden):
    """The fork server's process id, once there is one."""

    def find():
        with contextlib.suppress(IndexError, OSError):
            for pid in children_of(agent_of(warden)):
                if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "fork-server":
                    return pid

    return wait_for("the fork server", find)


def write(folder, text, name="program.py"):
    program = folder / name
    program.write_text(text)
    return program
