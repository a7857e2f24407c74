# SPDX-License-Identifier: Apache-2.0
"""Programs as their packages' users write them for torchrun: `package_jobs.py NAME FOLDER`. Nothing in them is of ddprun.

The last rank fails once, in its first start, after it has trained. Rank 0 then prints "NAME: done in restart 1".
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

NAME, FOLDER = sys.argv[1:3]
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FIRST = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"


def fail_once():
    if FIRST and RANK == WORLD - 1:
        sys.exit(3)


def data():
    inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    return TensorDataset(inputs, inputs.sum(1, keepdim=True))


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))


def same_everywhere(net):
    """Whether all ranks have the same parameters."""
    own = torch.cat([p.detach().flatten() for p in net.parameters()])
    all_ranks = [torch.zeros_like(own) for _ in range(WORLD)]
    dist.all_gather(all_ranks, own)
    assert all(torch.equal(own, other) for other in all_ranks)


def accelerate():
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == WORLD, accelerator.state
    net, optimizer, loader = accelerator.prepare(
        net := model(), torch.optim.SGD(net.parameters(), lr=0.01), DataLoader(data(), batch_size=8)
    )
    for inputs, targets in loader:
        accelerator.backward(nn.functional.mse_loss(net(inputs), targets))
        optimizer.step()
        optimizer.zero_grad()
    assert accelerator.gather(torch.tensor([RANK])).tolist() == list(range(WORLD))
    fail_once()
    accelerator.wait_for_everyone()
    same_everywhere(net)
    accelerator.end_training()


def lightning():
    import pytorch_lightning as pl

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = model()

        def training_step(self, batch, index):
            if self.global_step == 2:
                fail_once()
            return nn.functional.mse_loss(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    trainer = pl.Trainer(
        accelerator="cpu", strategy="ddp", devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        num_nodes=int(os.environ["GROUP_WORLD_SIZE"]), max_epochs=2, logger=False, enable_progress_bar=False,
        default_root_dir=FOLDER,
    )  # fmt: skip
    module = Module()
    trainer.fit(module, DataLoader(data(), batch_size=8))
    assert trainer.world_size == WORLD
    same_everywhere(module)


def transformers():
    import transformers as hf

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = model()

        def forward(self, x, labels):
            out = self.net(x)
            return {"loss": nn.functional.mse_loss(out, labels), "logits": out}

    class Fail(hf.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 3:
                fail_once()

    rows = [{"x": x, "labels": y} for x, y in data()]
    arguments = hf.TrainingArguments(
        output_dir=FOLDER, use_cpu=True, per_device_train_batch_size=8, max_steps=6, save_steps=2, report_to=[], disable_tqdm=True
    )
    trainer = hf.Trainer(model=Net(), args=arguments, train_dataset=rows, callbacks=[Fail()])
    assert arguments.world_size == WORLD
    trainer.train(resume_from_checkpoint=None if FIRST else hf.trainer_utils.get_last_checkpoint(FOLDER))
    assert trainer.state.global_step == 6
    same_everywhere(trainer.model)


def fsdp2_and_checkpoint():
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    net = model()
    fully_shard(net, mesh=init_device_mesh("cpu", (WORLD,)))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    steps = {"done": 0}
    if not FIRST:
        weights, moments = get_state_dict(net, optimizer)
        state = {"weights": weights, "moments": moments, "steps": steps}
        dcp.load(state, checkpoint_id=FOLDER)
        set_state_dict(net, optimizer, model_state_dict=state["weights"], optim_state_dict=state["moments"])
        assert steps["done"] == 3, steps
    for inputs, targets in DataLoader(data(), batch_size=16):
        nn.functional.mse_loss(net(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
        steps["done"] += 1
        if FIRST and steps["done"] == 3:
            weights, moments = get_state_dict(net, optimizer)
            dcp.save({"weights": weights, "moments": moments, "steps": steps}, checkpoint_id=FOLDER)
            fail_once()
    dist.barrier()
    dist.destroy_process_group()


def rpc():
    import torch.distributed.rpc as remote

    remote.init_rpc(f"worker{RANK}", rank=RANK, world_size=WORLD)
    for other in range(WORLD):
        assert remote.rpc_sync(f"worker{other}", torch.add, args=(torch.ones(2), other)).tolist() == [1 + other] * 2
    fail_once()
    remote.shutdown()


def store_of_its_own():
    """As vLLM and others do: one beside the launcher's, at a port that all know, which rank 0 opens."""
    store = dist.TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["OWN_STORE_PORT"]) + (0 if FIRST else 1), WORLD, is_master=RANK == 0
    )
    fail_once()
    dist.init_process_group("gloo", store=store, rank=RANK, world_size=WORLD)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    globals()[NAME]()
    if RANK == 0:
        print(f"{NAME}: done in restart {os.environ['TORCHELASTIC_RESTART_COUNT']}", flush=True)
    # torch 2.11 may abort in its own end after Gloo ("terminate called without an active exception"), under torchrun in
    # half of the runs of accelerate's job.
    os._exit(0)
