# SPDX-License-Identifier: Apache-2.0
"""ddprun.EpochBatches: the samples of `train`, number by number, and each exactly once whatever happens to the ranks."""

import collections
import json
import random
import sys

import pytest
import torch
from conftest import BIN, DDPRUN, PYTHON, TRAIN, clean_environment, run
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

sys.path.insert(0, PYTHON)
from ddprun import EpochBatches  # noqa: E402


def ranks_of(size, batch_size, world_size, state=None, seed=0):
    ranks = [EpochBatches(size, batch_size, rank=rank, world_size=world_size, seed=seed) for rank in range(world_size)]
    for rank in ranks:
        if state:
            rank.load_state_dict(state)
    return ranks


@pytest.mark.skipif(not (BIN / "train").exists(), reason="built without LibTorch")
def test_the_numbers_are_those_of_train(tmp_path):
    size, batch_size = 101, 4
    state, step = None, 0
    for world_size, steps in ((2, 5), (3, 18), (1, 30)):
        done = run(
            [DDPRUN, "--standalone", "--nproc-per-node", world_size, TRAIN, "--dataset", "synthetic", "--samples", size]
            + ["--model", "netresdeep", "--batch-size", batch_size, "--seed", 5, "--epochs", 9, "--max-steps", steps, "--no-eval"]
            + ["--device", "cpu", "--resume", "auto", "--checkpoint-every", 1, "--log-samples", "--output-dir", tmp_path]
        )
        assert done.returncode == 0, done.stderr
        ranks = ranks_of(size, batch_size, world_size, state, seed=5)
        logs = [
            {entry["step"]: entry for entry in map(json.loads, (tmp_path / f"samples-{rank}.jsonl").read_text().splitlines())}
            for rank in range(world_size)
        ]
        while step < steps:
            epochs = [iter(rank) for rank in ranks]
            while step < steps and len(ranks[0]) > 0:
                step += 1
                for log, rank, batches in zip(logs, ranks, epochs, strict=True):
                    assert log[step]["epoch"] == rank.epoch + 1
                    assert log[step]["images"] == next(batches), (step, rank.rank)
                    rank.end_step()
            if len(ranks[0]) == 0:
                for rank in ranks:
                    rank.end_epoch()
        state = ranks[0].state_dict()


def test_each_sample_once_at_any_number_of_ranks():
    choice = random.Random(3)
    for _ in range(300):
        size, batch_size = choice.randrange(8, 200), choice.randrange(1, 9)
        seen, state = collections.Counter(), None
        while True:
            ranks = ranks_of(size, batch_size, choice.randrange(1, 9), state)
            assert len({len(rank) for rank in ranks}) == 1
            steps = choice.randrange(0, 6)
            for batches in zip(*ranks, strict=True):
                if steps == 0:
                    break  # read ahead, and not done
                steps -= 1
                sizes = [len(batch) for batch in batches]
                assert min(sizes) >= 1 and max(sizes) - min(sizes) <= 1
                weights = [rank.loss_weight() for rank in ranks]
                assert sum(weights) == pytest.approx(len(ranks))
                own = {size / weight for size, weight in zip(sizes, weights, strict=True) if weight > 0}
                assert min(own) == pytest.approx(max(own)), "a sample counts the same on all ranks"
                for rank, batch, weight in zip(ranks, batches, weights, strict=True):
                    seen.update(batch if weight > 0 else [])
                    rank.end_step()
            state = ranks[0].state_dict()
            assert all(rank.state_dict() == state for rank in ranks)
            if len(ranks[0]) == 0:
                break
        assert seen == collections.Counter(range(size))


def test_where_nothing_is_left_over_they_are_distributed_samplers():
    data = list(range(48))
    for epoch in range(3):
        for rank in range(3):
            theirs = DistributedSampler(data, num_replicas=3, rank=rank, seed=7)
            theirs.set_epoch(epoch)
            ours = EpochBatches(48, 4, rank=rank, world_size=3, seed=7)
            ours.epoch = epoch
            assert [index for batch in ours for index in batch] == list(theirs)


def test_a_loader_may_be_ahead_of_the_steps_that_are_done():
    data = torch.arange(40)
    batches = EpochBatches(40, 4, rank=0, world_size=2)
    loader = DataLoader(data, batch_sampler=batches, num_workers=2, prefetch_factor=4)
    done = []
    for batch in loader:
        done += batch.tolist()
        batches.end_step()
        if len(done) == 8:
            break
    assert batches.state_dict()["consumed"] == 16
    batches.set_world(0, 1)
    rest = [index for batch in DataLoader(data, batch_sampler=batches) for index in batch.tolist()]
    other = [index for batch in list(EpochBatches(40, 4, rank=1, world_size=2))[:2] for index in batch]
    assert sorted(done + rest + other) == list(range(40))


def test_a_rank_without_a_sample_trains_with_a_stand_in_of_no_weight():
    data = TensorDataset(torch.arange(10.0))
    before = EpochBatches(10, 1, rank=0, world_size=2)
    for _ in range(4):
        before.end_step()
    ranks = ranks_of(10, 1, 4, before.state_dict())
    batches = [[values.tolist() for (values,) in DataLoader(data, batch_sampler=rank)] for rank in ranks]
    weights = [rank.loss_weight() for rank in ranks]
    assert weights == [2, 2, 0, 0]
    assert batches[2] == batches[3] == batches[0]
    left = torch.randperm(10, generator=torch.Generator().manual_seed(0)).tolist()[8:]
    assert [batches[0], batches[1]] == [[[left[0]]], [[left[1]]]]
    mean = sum(weight * batch[0][0] for weight, batch in zip(weights, batches, strict=True)) / 4
    assert mean == sum(left) / 2
    for rank in ranks:
        rank.end_step()
        assert len(rank) == 0 and rank.loss_weight() == 1


def test_an_epoch_that_ends_early_is_warned_of():
    batches = EpochBatches(10, 2, rank=0, world_size=1)
    batches.end_step()
    with pytest.warns(UserWarning, match=r"epoch 0 .* has counted 2 of its 10 samples; call end_step\(\)"):
        batches.end_epoch()


ACCELERATE = """
import torch
from accelerate import Accelerator, DataLoaderConfiguration, skip_first_batches
from torch.utils.data import DataLoader, TensorDataset
from ddprun import EpochBatches

def read(loader, batches):
    seen = 0
    for (values,) in loader:
        seen += len(values)
        batches.end_step()
    print("seen", seen, flush=True)

def loader_of(accelerator, as_rank=True):
    place = (accelerator.process_index, accelerator.num_processes) if as_rank else (0, 1)
    batches = EpochBatches(64, 4, rank=place[0], world_size=place[1])
    return DataLoader(TensorDataset(torch.arange(64)), batch_sampler=batches), batches

accelerator = Accelerator(cpu=True)
read(*loader_of(accelerator))
for number, way in enumerate([{}, {"even_batches": False}, {"split_batches": True}, {"as_rank": False}, {"skip": 1}]):
    accelerator.dataloader_config = DataLoaderConfiguration(**{key: way[key] for key in way if key.endswith("batches")})
    loader, batches = loader_of(accelerator, way.get("as_rank", True))
    loader = accelerator.prepare(loader)
    try:
        read(skip_first_batches(loader, 1) if "skip" in way else loader, batches)
    except RuntimeError as error:
        print("way", number, error, flush=True)
accelerator.dataloader_config = DataLoaderConfiguration(dispatch_batches=True)
loader, batches = loader_of(accelerator)
read(accelerator.prepare(loader), batches)
"""


def test_accelerates_division_is_refused_before_a_batch_is_read(tmp_path):
    script = tmp_path / "training.py"
    script.write_text(ACCELERATE)
    done = run(
        [DDPRUN, "--standalone", "--nproc-per-node", 2, script], env=clean_environment(PYTHONPATH=PYTHON, OMP_NUM_THREADS="1")
    )
    words = "accelerate's prepare() divides batches among its 2 processes"
    for rank in range(2):
        lines = [line.removeprefix(f"[{rank}] ") for line in done.stdout.splitlines() if line.startswith(f"[{rank}] ")]
        assert lines[0] == "seen 32", done.stdout
        assert [line[: len("way N ") + len(words)] for line in lines[1:]] == [f"way {way} {words}" for way in range(5)], done.stdout
    # Batches that the first process reads for all: the others wait for it.
    assert done.returncode == 1 and f"RuntimeError: {words}" in done.stderr, done.stderr


LIGHTNING = """
import os
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset
from ddprun import EpochBatches

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(1, 1)
        self.batches = EpochBatches(64, 4, rank=RANK, world_size=WORLD)
        self.batches.load_state_dict({**self.batches.state_dict(), "consumed": 40})
        self.seen = {}

    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.arange(64)), batch_sampler=self.batches)

    def training_step(self, batch, index):
        self.seen[self.batches.epoch] = self.seen.get(self.batches.epoch, 0) + len(batch[0])
        return self.net(batch[0].float().unsqueeze(1)).mean()

    def on_train_batch_end(self, *rest):
        self.batches.end_step()

    def on_train_epoch_end(self):
        self.batches.end_epoch()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

for options in ({}, {"use_distributed_sampler": False}, {"use_distributed_sampler": False, "reload_dataloaders_every_n_epochs": 1}):
    module = Module()
    trainer = pl.Trainer(accelerator="cpu", strategy="ddp", devices=WORLD, max_epochs=3, logger=False, enable_progress_bar=False,
                         enable_checkpointing=False, enable_model_summary=False, **options)
    try:
        trainer.fit(module)
        print("seen", list(module.seen.values()), flush=True)
    except TypeError as error:
        print("refused", error, flush=True)
os._exit(0)
"""


def test_lightning_takes_the_batches_as_they_are_or_says_what_to_set(tmp_path):
    script = tmp_path / "training.py"
    script.write_text(LIGHTNING)
    done = run(
        [DDPRUN, "--standalone", "--nproc-per-node", 2, script], env=clean_environment(PYTHONPATH=PYTHON, OMP_NUM_THREADS="1")
    )
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        lines = [line.removeprefix(f"[{rank}] ") for line in done.stdout.splitlines() if line.startswith(f"[{rank}] ")]
        assert lines[0].startswith("refused") and "Trainer(use_distributed_sampler=False)" in lines[0], done.stdout
        assert lines[-1] == "seen [12, 32, 32]", done.stdout
        # Lightning keeps the number of batches of the first epoch, of which the state left a rest.
        assert lines[1] == "seen [12, 12, 12]", done.stdout
        assert "epoch 1 of EpochBatches has ended, but end_step() has counted 24 of its 64 samples" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": 2}, "2 samples cannot be shared by 3 ranks"),
        ({"batch_size": 0}, "a batch of 0 samples"),
        ({"rank": 3}, "rank 3 is not one of 3 ranks"),
    ],
)
def test_what_cannot_be_is_said(options, words):
    with pytest.raises(ValueError, match=words):
        EpochBatches(**{"size": 9, "batch_size": 2, "rank": 0, "world_size": 3, **options})


def test_a_state_of_other_data_is_refused():
    state = EpochBatches(9, 2, rank=0, world_size=1).state_dict()
    with pytest.raises(ValueError, match="of a run with size 9, this one has 10"):
        EpochBatches(10, 2, rank=0, world_size=1).load_state_dict(state)
