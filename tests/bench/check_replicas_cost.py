# SPDX-License-Identifier: Apache-2.0
"""What --check-replicas costs of a step: two ranks, with and without it in turn, medians of the pairs.

python tests/bench/check_replicas_cost.py [--pairs 6] [--every 10 100]
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

BIN = pathlib.Path(os.environ.get("DDPRUN_BUILD_DIR", pathlib.Path(__file__).resolve().parents[2] / "build")) / "bin"
TRAININGS = {
    "netresdeep": "--model netresdeep --batch-size 32 --max-steps 200",
    "resnet18": "--model resnet18 --batch-size 16 --max-steps 15",
}


def milliseconds_a_step(training, every):
    with tempfile.TemporaryDirectory() as folder:
        command = [BIN / "ddprun", "--standalone", "--nproc-per-node", "2", BIN / "train", *training.split()]
        command += "--dataset synthetic --samples 20000 --epochs 9 --device cpu --no-eval --no-metrics".split()
        command += ["--check-replicas", every, "--output-dir", folder]
        subprocess.run(
            [str(word) for word in command],
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        summary = json.loads((pathlib.Path(folder) / "summary.json").read_text())
        return 1000 / summary["steps_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--every", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--training", choices=TRAININGS, nargs="+", default=list(TRAININGS))
    arguments = parser.parse_args()
    for name in arguments.training:
        for every in arguments.every:
            pairs = []
            for i in range(arguments.pairs):
                order = (0, every) if i % 2 == 0 else (every, 0)
                times = {which: milliseconds_a_step(TRAININGS[name], which) for which in order}
                pairs.append((times[0], times[every]))
            costs = [100 * (with_it / without - 1) for without, with_it in pairs]
            print(
                f"{name}, every {every}: {statistics.median(without for without, _ in pairs):.2f} ms a step without, "
                f"{statistics.median(with_it for _, with_it in pairs):.2f} ms with; "
                f"cost {statistics.median(costs):+.2f} % (pairs from {min(costs):+.2f} to {max(costs):+.2f} %)",
                flush=True,
            )


if __name__ == "__main__":
    main()
