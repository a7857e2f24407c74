# SPDX-License-Identifier: Apache-2.0
"""Which samples each rank sees, so that every sample of every epoch is seen exactly once however the number of ranks changes."""

import sys
import warnings


class EpochBatches:
    """A batch_sampler for a DataLoader that goes on in the middle of an epoch with another number of ranks.

        batches = EpochBatches(len(dataset), batch_size=32, rank=rank, world_size=world_size, seed=0)
        batches.load_state_dict(checkpoint["batches"])          # if there is one
        while batches.epoch < 90:
            for images, labels in DataLoader(dataset, batch_sampler=batches):
                loss = loss_of(images, labels) * batches.loss_weight()
                ...backward, step...
                batches.end_step()                              # these samples are done, on all ranks
            batches.end_epoch()

    The numbers are those of ddprun's `train` (worker/library/math/epoch_plan.h). The order of an epoch is torch.randperm of a generator
    seeded with seed + epoch, as in torch.utils.data.DistributedSampler. Batch k takes the next batch_size * world_size samples of it,
    and rank r every world_size-th of those from the r-th on; where that product divides the data set the numbers are
    DistributedSampler's. Nothing is repeated and nothing dropped: what is left at the end is shared out as evenly as it goes, and
    joins the batch before it if some rank had fewer than min(batch_size, 2) samples of it, since batch norm cannot learn from one.

    All ranks make the same number of steps. When an epoch is resumed with fewer samples left than ranks, a rank without one gets the
    first of them as a stand-in, whose loss_weight() is 0. The loader must keep the order of the batches (in_order=True, its default).

    The samples are divided already, and accelerate's prepare() would divide them once more: RuntimeError when the first batch is read.
    Lightning's Trainer needs use_distributed_sampler=False, else it raises TypeError.
    """

    def __init__(self, size, batch_size, *, rank, world_size, seed=0):
        if size < world_size:
            raise ValueError(f"{size} samples cannot be shared by {world_size} ranks; start no more ranks than there are samples")
        if batch_size < 1:
            raise ValueError(f"a batch of {batch_size} samples cannot be; batch_size must be at least 1")
        self.size, self.batch_size, self.seed = size, batch_size, seed
        self.epoch = 0
        self.consumed = 0  # samples of this epoch, over all ranks, whose steps are done
        self.set_world(rank, world_size)

    def set_world(self, rank, world_size):
        """Goes on with this number of ranks: begin a new iteration after it."""
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} is not one of {world_size} ranks")
        self.rank, self.world_size = rank, world_size

    def __len__(self):
        """Batches that are left of this epoch, the same on all ranks."""
        left = self.size - self.consumed
        whole, rest_of_each = divmod(left // self.world_size, self.batch_size)
        rest = rest_of_each > 0 or left % self.world_size > 0
        joins = whole > 0 and rest_of_each < min(self.batch_size, 2)
        return whole + (1 if rest and not joins else 0)

    def __iter__(self):
        import torch

        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(self.size, generator=generator).tolist()
        begin, rank, world_size = self.consumed, self.rank, self.world_size  # a loader may be some batches ahead
        self._check_not_divided_again()
        for left in range(len(self) - 1, -1, -1):
            end = self.size if left == 0 else begin + self.batch_size * world_size
            yield order[begin + rank : end : world_size] or [order[begin]]
            begin = end

    def _check_not_divided_again(self):
        # prepare() reads nothing of a batch sampler in all of its ways, so that only the stack shows accelerate's loader. In one process
        # that divides nothing.
        frame = sys._getframe()
        while frame is not None and frame.f_globals.get("__name__") != "accelerate.data_loader":
            frame = frame.f_back
        if frame is None:
            return
        from accelerate import PartialState

        if PartialState().num_processes > 1:
            raise RuntimeError(
                f"accelerate's prepare() divides batches among its {PartialState().num_processes} processes, but those of EpochBatches are "
                "one rank's already, and samples would be lost; give prepare() the model and the optimizer without this DataLoader, and "
                "move its batches to accelerator.device"
            )

    def loss_weight(self):
        """Of the batch that end_step() has not counted yet: the factor that makes the average of the ranks' mean losses the mean over
        all their samples. 1 where all ranks have as many, 0 for a stand-in."""
        samples = self._end_of_step() - self.consumed
        own = len(range(self.rank, samples, self.world_size))
        return own * self.world_size / samples if samples > 0 else 1.0

    def end_step(self):
        """The next batch is done: its step was made on all ranks, and will not be repeated."""
        self.consumed = self._end_of_step()

    def _end_of_step(self):
        return self.size if len(self) <= 1 else self.consumed + self.batch_size * self.world_size

    def end_epoch(self):
        """Goes on with the next epoch. Warns if samples of this one are left."""
        if self.consumed < self.size:
            warnings.warn(
                f"epoch {self.epoch} of EpochBatches has ended, but end_step() has counted {self.consumed} of its {self.size} samples; call "
                "end_step() after each step, and let the loop read all batches (Lightning's Trainer after a resume within an epoch: "
                "reload_dataloaders_every_n_epochs=1)",
                stacklevel=2,
            )
        self.epoch += 1
        self.consumed = 0

    def state_dict(self):
        """The same on all ranks; valid for any number of them."""
        return {"epoch": self.epoch, "consumed": self.consumed, "size": self.size, "seed": self.seed}

    def load_state_dict(self, state):
        for name in ("size", "seed"):
            if state[name] != getattr(self, name):
                raise ValueError(
                    f"the state is of a run with {name} {state[name]}, this one has {getattr(self, name)}; resume with what it was begun with"
                )
        self.epoch, self.consumed = state["epoch"], state["consumed"]
