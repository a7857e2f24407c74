# SPDX-License-Identifier: Apache-2.0
"""What an earlier ddprun wrote is read by this one: checkpoints, models, journals. tests/testing/earlier/COMMIT holds what the program
of that commit (with torch 2.11) left of these commands; a change of a format is a new version that reads the old one too.

    ddprun --standalone --nproc-per-node 2 train SETTINGS --max-steps 6 --checkpoint-every 6 --output-dir run
    ddprun --standalone --nproc-per-node 2 train SETTINGS --max-steps 12 --resume auto --output-dir run   (after-12.pth)
    ddprun-rendezvous --port 0 --insecure --journal journal, two nodes of a run, SIGKILL
"""

import json
import pathlib
import re
import shutil

import pytest
import torch
from conftest import BIN, DDPRUN, REPO, TRAIN, run, start

EARLIER = sorted((REPO / "tests" / "testing" / "earlier").iterdir())
SETTINGS = ["--model", "linear", "--dataset", "synthetic", "--samples", "256", "--input-size", "8", "--batch-size", "4", "--epochs", "1",
            "--ema-decay", "0.9", "--check-replicas", "0"]

pytestmark = pytest.mark.parametrize("earlier", EARLIER, ids=lambda folder: folder.name)


@pytest.mark.skipif(not pathlib.Path(TRAIN).exists(), reason="built without LibTorch")
def test_a_training_goes_on_from_its_checkpoint(earlier, tmp_path):
    """To the numbers that the earlier program came to; kernels of another torch may round otherwise."""
    shutil.copytree(earlier / "run", tmp_path / "run")
    done = run([DDPRUN, "--standalone", "--nproc-per-node", "2", TRAIN, *SETTINGS, "--max-steps", "12",
                "--resume", "auto", "--output-dir", tmp_path / "run"])
    assert done.returncode == 0 and re.search(r"step-000000006\.safetensors", done.stdout), done
    ours, theirs = torch.load(tmp_path / "run" / "cifar_net.pth"), torch.load(earlier / "after-12.pth")
    assert list(ours) == list(theirs)
    for name, tensor in theirs.items():
        assert torch.allclose(ours[name], tensor, rtol=0, atol=1e-6), name


@pytest.mark.skipif(not pathlib.Path(TRAIN).exists(), reason="built without LibTorch")
@pytest.mark.parametrize("model", ["after-12.pth", "run/checkpoints/step-000000006.safetensors"])
def test_its_models_are_evaluated(earlier, model):
    done = run([TRAIN, "eval", earlier / model, "--model", "linear", "--dataset", "synthetic", "--samples", "256", "--input-size", "8"])
    assert done.returncode == 0 and "test accuracy" in done.stdout, done


def test_a_service_goes_on_from_its_journal(earlier, tmp_path):
    """It knows the run's nodes, and waits for them to come back."""
    shutil.copytree(earlier / "journal", tmp_path / "journal")
    service = start([BIN / "ddprun-rendezvous", "--port", "0", "--insecure", "--journal", tmp_path / "journal"])
    try:
        at = service.stdout.readline().split()[-1]
        done = run([BIN / "ddpctl", "status", "--rdzv-endpoint", at, "--rdzv-id", "earlier", "--insecure", "--json"])
        assert done.returncode == 0, (done, service.poll())
        (found,) = json.loads(done.stdout)["runs"]
        assert sorted(node["node_id"] for node in found["nodes"]) == json.loads((earlier / "nodes.json").read_text()), found
    finally:
        service.terminate()
        service.communicate(timeout=60)
