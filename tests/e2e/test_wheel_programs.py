# SPDX-License-Identifier: Apache-2.0
"""The launcher's own tests again, against the programs of an installed wheel: they are linked another way than the build's."""

import os
import pathlib
import subprocess
import sys

import pytest
from conftest import REPO
from test_wheel import TORCH, pytestmark, venv, wheel  # noqa: F401  (fixtures; the same conditions)

# What a run is made of. Not tests that look for workers by the path of train, which becomes another program.
FILES = ("bad_input", "ctl_logs", "dry_run", "hangs", "hosts", "logs", "names", "observe", "preload", "python_programs", "restarts", "security",
         "service_restart", "settings", "torchrun_parity", "torchrun_surface", "train")


# Whose tests compare the worker's Python with their own: the wheel's ddprun takes that of its environment while it is one, and so
# does its train, which these do without.
IN_NO_ENVIRONMENT = ("torchrun_parity",)


@pytest.fixture
def settings(request, venv):  # noqa: F811
    file = venv / "pyvenv.cfg"
    text = file.read_text()
    if request.node.callspec.params["name"] in IN_NO_ENVIRONMENT:
        file.unlink()
    yield
    file.write_text(text)


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("name", FILES)
def test_passes_with_the_wheels_programs(name, venv, tmp_path):  # noqa: F811
    (packages,) = venv.glob("lib/python3*/site-packages")
    for package in ("torch", "nvidia"):
        if (TORCH.parent / package).exists() and not (packages / package).exists():
            (packages / package).symlink_to(TORCH.parent / package)
    # These programs take the Python of their own environment (test_wheel.py), which must have all that these tests import.
    (packages / "others.pth").write_text(f"{TORCH.parent}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", pathlib.Path(REPO, "tests", "e2e", f"test_{name}.py")]
    env = {**os.environ, "DDPRUN_BIN_DIR": str(venv / "bin")}
    done = subprocess.run(list(map(str, command)), env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-8000:]
