#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time of a step of worker/examples/fashion_mnist, built on the installed libddprun, beside `train` with the same settings.

    tests/bench/library_vs_train.py [--repeats 7] [--steps 900]

Two ranks of one thread each. A step is the difference between a long and a short run, so that start and end do not count; the
two programs take turns. Prints the medians, their spread and the ratio.
"""

import argparse
import gzip
import pathlib
import re
import statistics
import subprocess
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
BUILD = REPO / "build"
IMAGES = pathlib.Path("/usr/share/datasets/fashion-mnist")
SHORT = 50
TRAIN = "train --model simple-cnn --dataset fashion-mnist --lr 0.02 --schedule constant --warmup-epochs 0 --no-nesterov"


def build_example(folder):
    torch = re.search(r"^DDPRUN_TORCH_DIR:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE)[1]
    subprocess.run(["cmake", "--install", BUILD, "--prefix", folder / "ddprun", "--component", "dev"], check=True, stdout=subprocess.DEVNULL)
    flags = [f"-DCMAKE_PREFIX_PATH={folder / 'ddprun'}", f"-DDDPRUN_TORCH_DIR={torch}", "-DCMAKE_BUILD_TYPE=Release"]
    source = REPO / "worker/examples/fashion_mnist"
    subprocess.run(["cmake", "-S", source, "-B", folder / "build", *flags], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", folder / "build"], check=True, stdout=subprocess.DEVNULL)
    return folder / "build/fashion_mnist"


def seconds(*program):
    command = [BUILD / "bin/ddprun", "--standalone", "--nproc-per-node", "2", *program]
    begin = time.monotonic()
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL, env={"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "HOME": str(pathlib.Path.home())})
    return time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--steps", type=int, default=900)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for packed in IMAGES.glob("*.gz"):
            (folder / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
        example = build_example(folder)

        def own(steps, run):
            return seconds(example, folder, folder / f"own-{run}-{steps}", steps)

        def other(steps, run):
            settings = ["--weight-decay", "0", "--no-eval", "--no-metrics", "--max-steps", steps, "--checkpoint-every", 500]
            return seconds(*TRAIN.split(), *settings, "--output-dir", folder / f"train-{run}-{steps}")

        times = {own: [], other: []}
        for run in range(options.repeats):
            for program, of_step in times.items():
                of_step.append((program(options.steps, run) - program(SHORT, run)) / (options.steps - SHORT) * 1000)
        ratios = [mine / its for mine, its in zip(times[own], times[other])]
        for title, values in (("example, ms a step", times[own]), ("train, ms a step", times[other]), ("ratio", ratios)):
            print(f"{title:20} median {statistics.median(values):.3f}  from {min(values):.3f} to {max(values):.3f}")


if __name__ == "__main__":
    main()
