# SPDX-License-Identifier: Apache-2.0
"""torch.distributed in the workers of two nodes: what it finds under torchrun is what it finds under ddprun."""

import json

import pytest
from conftest import DDPRUN, processes_of_this_session
from side_by_side import C10D, HERE, STATIC, Case, Side

TWO = ("--nnodes=2", "--nproc-per-node=1", "--rdzv-id=job")
PROGRAM = (str(HERE / "parity_torch.py"), "FOLDER")
BY_RANK = (("--node-rank=0",), ("--node-rank=1",))


def said(case, launcher, folder):
    seen = Side(case, launcher, folder).finish()
    assert seen.codes == [0, 0], seen.errors
    return [json.loads(path.read_text()) for path in sorted(seen.folder.glob("*.said"))]


@pytest.mark.parametrize(
    ("meet", "nodes"),
    [pytest.param(STATIC, BY_RANK, id="static", marks=pytest.mark.nightly), pytest.param(C10D, ((), ()), id="c10d")],
)
def test_the_store_of_the_agent(tmp_path, meet, nodes):
    """TORCHELASTIC_USE_AGENT_STORE: a program's own store and `env://` find the agent's at MASTER_ADDR:MASTER_PORT."""
    case = Case("torch", TWO, meet, nodes, program=PROGRAM, variables={"OMP_NUM_THREADS": "1"})
    theirs = said(case, case.torchrun, tmp_path / "torchrun")
    ours = said(case, [DDPRUN], tmp_path / "ddprun")
    assert ours == theirs
    assert [worker["launched"] for worker in ours] == [True, True]
    assert [worker["sum"] for worker in ours] == [3.0, 3.0]
    assert ours[0]["nodes"] == ["0", "1"]


def test_a_program_by_itself_is_not_launched():
    """What the test above would be worth if this said True: little."""
    import torch.distributed as dist

    assert not dist.is_torchelastic_launched()


def test_nothing_is_left_behind():
    assert not processes_of_this_session()
