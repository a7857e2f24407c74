#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a model in stages costs and gains on a CPU: images a second and peak memory beside the unsplit model, in turn.

    tests/bench/pipeline_cost.py [--model netresdeep] [--batch-size 64] [--stages 2] [--steps 12] [--repeats 5]
                                 [--micro-batches 1,2,4,8] [--json FILE]

Each way trains the same images on as many cores in all as there are stages:
plain          one process with that many threads for an operator
ddp            that many ranks of one thread, the batch shared by them
gpipe M, 1f1b M   that many ranks of one thread, a stage each, M micro-batches
threads 1f1b M    the same stages in one process

Images a second are train's own, without the start; peak memory is VmHWM of the largest rank, and of all ranks together
(libraries that they share are counted in each). Medians with the least and the most seen. Run it with the Python that
has torch (deploy/setup.sh prints it).
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(os.environ.get("DDPRUN_BUILD_DIR", pathlib.Path(__file__).resolve().parents[2] / "build"))
DDPRUN, TRAIN = str(BUILD / "bin" / "ddprun"), str(BUILD / "bin" / "train")
DEADLINE_S = 900

# Runs `train` and writes its peak memory when it has ended: the kernel tells it to the parent.
WITH_MEMORY = """
import os, resource, subprocess, sys
code = subprocess.run(sys.argv[2:]).returncode
with open(f"{sys.argv[1]}/memory.{os.environ.get('RANK', '0')}", "w") as file:
    file.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6))
sys.exit(code)
"""


def measured(arguments, ranks, threads, *more):
    """(images a second, MB of the largest rank, MB of all) of one run."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-S", "-c", WITH_MEMORY, folder, TRAIN]
        command += ["--model", arguments.model, "--dataset", "synthetic", "--no-eval", "--lr", "0.001"]
        command += ["--max-steps", str(arguments.steps), "--output-dir", folder, *map(str, more)]
        if ranks > 1:
            command = [DDPRUN, "--standalone", "--nproc-per-node", str(ranks), "--no-python", *command]
        env = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        done = subprocess.run(command, env=env, timeout=DEADLINE_S, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
        summary = json.loads((pathlib.Path(folder) / "summary.json").read_text())
        memory = [float(path.read_text()) for path in pathlib.Path(folder).glob("memory.*")]
        return summary["images_per_second"], max(memory), sum(memory)


def ways(arguments):
    stages, batch = arguments.stages, arguments.batch_size
    if batch % stages != 0:
        sys.exit(f"--batch-size {batch} cannot be shared by {stages} ranks")
    found = {
        "plain": (1, stages, "--batch-size", batch),
        "ddp": (stages, 1, "--batch-size", batch // stages),
    }
    for micro_batches in arguments.micro_batches.split(","):
        split = ["--batch-size", batch, "--pipeline", stages, "--micro-batches", micro_batches]
        for schedule in ("gpipe", "1f1b"):
            found[f"{schedule} {micro_batches}"] = (stages, 1, *split, "--pipeline-schedule", schedule)
        found[f"threads 1f1b {micro_batches}"] = (1, stages, *split)
    return found


def told(values, digits=0):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="netresdeep")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--micro-batches", default="1,2,4,8")
    parser.add_argument("--more", default="", help="settings of train for all: --more=--no-shared-blocks")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    os.environ.setdefault("DDPRUN_TOKEN", os.urandom(32).hex())
    seen = {name: [] for name in ways(arguments)}
    for _ in range(arguments.repeats):
        for name, (ranks, threads, *more) in ways(arguments).items():
            seen[name].append(measured(arguments, ranks, threads, *more, *arguments.more.split()))
    print(f"{arguments.model}, batch {arguments.batch_size}, {arguments.stages} cores; ratio: median of pairs with plain")
    print("| | images a second | to plain | largest rank, MB | all ranks, MB |\n|---|---|---|---|---|")
    for name, values in seen.items():
        speeds, largest, total = zip(*values)
        ratio = statistics.median(speed / plain[0] for speed, plain in zip(speeds, seen["plain"]))
        print(f"| {name} | {told(speeds)} | {ratio:.2f} | {told(largest)} | {told(total)} |")
    if arguments.json:
        arguments.json.write_text(json.dumps(seen, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
