# SPDX-License-Identifier: Apache-2.0
"""What it costs of a step to be ready for a fault, while none comes: two ranks, with and without in turn.

python tests/bench/going_on_cost.py [--pairs 6] [--what all replicas-10 replicas-100] [--training netresdeep resnet18]

"all": under ddprun, which keeps the workers, with a spare, --check-replicas 100 and the search for stragglers; without: the same
two ranks started by hand (RANK, WORLD_SIZE), where there is nobody to keep them, and no search. "replicas-N": --check-replicas N
under ddprun, and without it. A run's time for a step is the median over its records of 10 steps.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import tempfile

BIN = pathlib.Path(os.environ.get("DDPRUN_BUILD_DIR", pathlib.Path(__file__).resolve().parents[2] / "build")) / "bin"
TRAININGS = {
    "netresdeep": ("--model netresdeep --max-steps 600", 32),
    "resnet18": ("--model resnet18 --max-steps 60", 16),
}
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def under_ddprun(flags, training, extra):
    command = [BIN / "ddprun", "--standalone", "--nproc-per-node", 2, *flags.split(), BIN / "train", *training, *extra.split()]
    return [subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, env=ENVIRONMENT)]


def by_hand(training, extra):
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    world = dict(WORLD_SIZE=2, LOCAL_WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    return [
        subprocess.Popen(
            [str(word) for word in [BIN / "train", *training, *extra.split()]],
            stdout=subprocess.DEVNULL,
            env={**ENVIRONMENT, **{name: str(value) for name, value in dict(world, RANK=rank, LOCAL_RANK=rank).items()}},
        )
        for rank in range(2)
    ]


WHATS = {
    "all": (
        lambda training: by_hand(training, "--straggler-factor 0"),
        lambda training: under_ddprun("--max-restarts 3 --spares 1", training, "--check-replicas 100"),
    ),
    **{
        f"replicas-{every}": (
            lambda training: under_ddprun("", training, "--check-replicas 0"),
            lambda training, every=every: under_ddprun("", training, f"--check-replicas {every}"),
        )
        for every in (10, 100)
    },
}


def milliseconds_a_step(start, words, batch):
    with tempfile.TemporaryDirectory() as folder:
        training = [*words.split(), "--batch-size", batch, "--output-dir", folder, "--log-every", 10]
        training += "--dataset synthetic --samples 40000 --epochs 9 --device cpu --no-eval".split()
        for process in start(training):
            assert process.wait() == 0, process.args
        records = [json.loads(line) for line in (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()]
    speeds = [record["throughput/images_per_second"] for record in records if "throughput/images_per_second" in record]
    return 1000 * 2 * batch / statistics.median(speeds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--what", choices=WHATS, nargs="+", default=list(WHATS))
    parser.add_argument("--training", choices=TRAININGS, nargs="+", default=list(TRAININGS))
    options = parser.parse_args()
    for name in options.training:
        for what in options.what:
            pairs = []
            for i in range(options.pairs):
                times = {on: milliseconds_a_step(WHATS[what][on], *TRAININGS[name]) for on in ((0, 1) if i % 2 == 0 else (1, 0))}
                pairs.append((times[0], times[1]))
            costs = [100 * (with_it / without - 1) for without, with_it in pairs]
            print(
                f"{name}, {what}: {statistics.median(without for without, _ in pairs):.2f} ms a step without, "
                f"{statistics.median(with_it for _, with_it in pairs):.2f} ms with; "
                f"cost {statistics.median(costs):+.2f} % (pairs from {min(costs):+.2f} to {max(costs):+.2f} %)",
                flush=True,
            )


if __name__ == "__main__":
    main()
