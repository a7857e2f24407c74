# SPDX-License-Identifier: Apache-2.0
"""Trains in plain PyTorch what `train --recipe speedrun` trained, on one rank and a CPU, and compares every number.

    train --recipe speedrun --amp off --max-steps 0 ... --output-dir A      (the initial parameters)
    train --recipe speedrun --amp off ... --output-dir B
    parity_speedrun.py --init A/cifar_net.pth --final B/cifar_net.pth --metrics B/metrics.jsonl ...

Prints the largest differences of losses, parameters and the test loss; exits with 1 if one is above its tolerance.
"""

import argparse
import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent))
from parity_ddp import read_idx  # noqa: E402
from python_speedrun import Airbench, SpeedrunOptimizer, cut, six_views, whitening_filters  # noqa: E402

MASK = 2**64 - 1


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--init", required=True)
    parser.add_argument("--final", required=True)
    parser.add_argument("--metrics", required=True)
    parser.add_argument("--data-dir", required=True, help="files of Fashion-MNIST's form")
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--epochs", type=float, required=True)
    parser.add_argument("--whiten-epochs", type=int, required=True)
    parser.add_argument("--width", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--tolerance", type=float, required=True)
    return parser.parse_args()


class SplitMix64:
    """rendezvous/base/random.h"""

    def __init__(self, *coordinates):
        self.state = 0
        for coordinate in coordinates:
            other = SplitMix64()
            other.state = self.state ^ coordinate
            self.state = other.next()

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def below(self, bound):
        return ((self.next() >> 32) * bound) >> 32


def placements(seed, epoch, samples):
    """Shifts and mirrors of (position in the epoch's order, index) as worker/train/data/augment.cc draws them."""
    drawn = []
    for position, index in samples:
        random = SplitMix64(seed, epoch, position)
        shifts = random.below(5) - 2, random.below(5) - 2
        at_first = SplitMix64(seed, 0x666C6970, index).below(2) == 1
        drawn.append((*shifts, at_first != (epoch % 2 == 1)))
    return torch.tensor(drawn).unbind(1)


def load(folder, part):
    images = F.pad(read_idx(folder, f"{part}-images-idx3-ubyte"), (2, 2, 2, 2)).float().div(255).sub(0.2860).div(0.3530)
    images = images[:, None].expand(-1, 3, -1, -1).contiguous(memory_format=torch.channels_last)
    return images, read_idx(folder, f"{part}-labels-idx1-ubyte").long()


def train(options, model, images, labels):
    per_epoch = len(images) // options.batch_size
    steps = round(options.epochs * per_epoch)
    optimizer = SpeedrunOptimizer(model, steps, per_epoch, options.batch_size, options.whiten_epochs)
    padded = F.pad(images, (2, 2, 2, 2), mode="reflect")
    losses = []
    model.train()
    for step in range(steps):
        epoch, first = step // per_epoch, step % per_epoch * options.batch_size
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(options.seed + epoch))
        indices = order[first : first + options.batch_size]
        shift_y, shift_x, mirrored = placements(options.seed, epoch, enumerate(indices.tolist(), start=first))
        batch = cut(padded[indices], shift_y, shift_x, mirrored.bool())
        optimizer.zero_grad()
        model.trains_whitening = optimizer.trains_whitening()
        loss = F.cross_entropy(model(batch), labels[indices], label_smoothing=0.2)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    options = parse_arguments()
    torch.set_num_threads(1)
    images, labels = load(options.data_dir, "train")
    model = Airbench(width=options.width).to(memory_format=torch.channels_last)
    initial = torch.load(options.init)
    model.load_state_dict(initial)
    # Signs and the basis of equal eigenvalues are the library's: what must agree is what the filters do.
    ours, theirs = whitening_filters(images[:5000]).flatten(1), initial["whiten.weight"].flatten(1)
    whitening = (ours.T @ ours - theirs.T @ theirs).abs().max().item() / theirs.square().sum().item()
    losses = train(options, model, images, labels)
    model.eval()
    test_images, test_labels = load(options.data_dir, "t10k")
    with torch.no_grad():
        test_loss = F.cross_entropy(six_views(model, test_images), test_labels).item()

    records = [json.loads(line) for line in Path(options.metrics).read_text().splitlines()]
    their_losses = [record["loss/train"] for record in records if "loss/train" in record]
    their_test_loss = [record["loss/test"] for record in records if "loss/test" in record][-1]
    final = torch.load(options.final)
    state = model.state_dict()
    assert list(final) == list(state), sorted(set(final) ^ set(state))
    assert len(losses) == len(their_losses), (len(losses), len(their_losses))
    # Beside the largest number of a tensor, as variances go to hundreds.
    difference = {
        key: (final[key].double() - state[key].double()).abs().max().item() / max(1, state[key].abs().max().item())
        for key in state
    }
    found = {
        "whitening": whitening,
        "losses": max(abs(a - b) for a, b in zip(losses, their_losses)),
        "state": max(difference.values()),
        "test loss": abs(test_loss - their_test_loss),
    }
    worst = max(difference, key=difference.get)
    moved = {key: (state[key] - initial[key]).abs().max().item() for key in ("whiten.bias", "head.weight")}
    print(f"{len(losses)} steps, losses {losses[0]:.4f} to {losses[-1]:.4f}, test {test_loss:.4f}; largest differences:",
          ", ".join(f"{name} {value:.3g}" for name, value in found.items()), f"(in {worst});",
          ", ".join(f"{key} moved by {value:.3g}" for key, value in moved.items()), flush=True)
    if min(moved.values()) == 0:
        sys.exit("nothing was trained: the comparison says nothing")
    # `not <=` so that a NaN counts as a difference.
    sys.exit(1 if any(not value <= options.tolerance for value in found.values()) else 0)


if __name__ == "__main__":
    main()
