# SPDX-License-Identifier: Apache-2.0
"""Which GPUs and which local rank a Python worker sees, under torchrun and under ddprun."""

import json

import pytest
from conftest import DDPRUN, clean_environment, run, torchrun_standalone

SHOW = """\
import json, os, sys
names = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "CUDA_VISIBLE_DEVICES")
with open(os.path.join(sys.argv[1], os.environ["RANK"]), "w") as file:
    json.dump({name: os.environ.get(name) for name in names}, file)
"""


@pytest.fixture
def seen_under(tmp_path):
    """The variables of each rank, or None where the launcher refuses."""
    script = tmp_path / "show.py"
    script.write_text(SHOW)

    def seen(name, launcher, flags, visible):
        folder = tmp_path / name
        folder.mkdir()
        env = clean_environment()
        env.pop("CUDA_VISIBLE_DEVICES", None)
        if visible is not None:
            env["CUDA_VISIBLE_DEVICES"] = visible
        done = run([*launcher, *flags, script, folder], env=env)
        if done.returncode != 0:
            return None
        return [json.loads(file.read_text()) for file in sorted(folder.iterdir())]

    return seen


@pytest.mark.parametrize("visible", [None, "4,5", "7, GPU-1a,MIG-2b", "4"])
def test_virtual_local_ranks_are_torchruns(seen_under, visible):
    flags = ["--nproc-per-node", "2", "--virtual-local-rank"]
    theirs = seen_under("torchrun", torchrun_standalone(), flags, visible)
    ours = seen_under("ddprun", [DDPRUN], flags, visible)
    assert ours == theirs
    assert (ours is None) == (visible == "4")


def test_without_flags_all_see_all_as_under_torchrun(seen_under):
    flags = ["--nproc-per-node", "2"]
    assert seen_under("ddprun", [DDPRUN], flags, "4,5") == seen_under("torchrun", torchrun_standalone(), flags, "4,5")
