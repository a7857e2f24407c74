# SPDX-License-Identifier: Apache-2.0
"""Augmented, normalised 32x32 images a second: our loader beside Python's DataLoader, interleaved.

    python tests/bench/loader_vs_torch.py [--build-dir build] [--repeats 5] [--seconds 2]

Both sides use two cores: ours as two ranks of one thread each, and as one rank of two threads; Python's as a DataLoader
of two worker processes, with the transforms that torchvision's RandomCrop(32, padding=4), RandomHorizontalFlip,
ToTensor and Normalize are, in tensor operations of one image. Each prints its median, its spread and the ratio.
"""

import argparse
import pathlib
import random
import statistics
import subprocess
import time

import torch

MEAN = torch.tensor([0.5, 0.5, 0.5]).view(3, 1, 1)
STD = torch.tensor([0.25, 0.25, 0.25]).view(3, 1, 1)
BATCH = 128


class Images(torch.utils.data.Dataset):
    def __init__(self, count):
        self.images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8)
        self.labels = torch.randint(0, 10, (count,)).tolist()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        padded = torch.nn.functional.pad(self.images[index], (4, 4, 4, 4))
        top, left = random.randrange(9), random.randrange(9)
        image = padded[:, top : top + 32, left : left + 32]
        if random.random() < 0.5:
            image = image.flip(2)
        return image.to(torch.float32).div(255).sub(MEAN).div(STD), self.labels[index]


def python_speed(seconds):
    """After the first batch: starting the workers, which takes Python a second, is not held against it."""
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(
        Images(50_000), batch_size=BATCH, shuffle=True, num_workers=2, persistent_workers=True, prefetch_factor=3
    )
    batches = iter(loader)
    next(batches)
    images, begin = 0, time.monotonic()
    while time.monotonic() - begin < seconds:
        try:
            images += len(next(batches)[1])
        except StopIteration:
            batches = iter(loader)
    return images / (time.monotonic() - begin)


def our_speed(program, ranks, threads, layout, seconds):
    """Of all ranks, a process each."""
    work = [str(ranks), str(threads), str(BATCH), layout, str(seconds)]
    processes = [
        subprocess.Popen([program, str(rank), *work], stdout=subprocess.PIPE, text=True) for rank in range(ranks)
    ]
    outputs = [process.communicate(timeout=60 + 10 * seconds)[0] for process in processes]
    return sum(map(float, outputs))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build-dir", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    arguments = parser.parse_args()
    program = arguments.build_dir / "tests" / "loader_speed"
    sides = {"DataLoader, 2 workers": lambda: python_speed(arguments.seconds)}
    for ranks, threads in ((2, 1), (1, 2)):
        for layout in ("channels-last", "planar"):
            name = f"ddprun, {ranks} x {threads} threads, {layout}"
            sides[name] = lambda r=ranks, t=threads, l=layout: our_speed(program, r, t, l, arguments.seconds)
    speeds = {name: [] for name in sides}
    for _ in range(arguments.repeats):
        for name, measure in sides.items():
            speeds[name].append(measure())
    python = statistics.median(speeds["DataLoader, 2 workers"])
    print(f"images a second, {arguments.repeats} times {arguments.seconds:g} s each, interleaved")
    for name, values in speeds.items():
        median = statistics.median(values)
        print(f"{name:38} {median:10,.0f}  ({min(values):,.0f} to {max(values):,.0f})  {median / python:6.1f} x")


if __name__ == "__main__":
    main()
