# SPDX-License-Identifier: Apache-2.0
"""Does `train` reach the accuracy that the same recipe reaches in Python? Fashion-MNIST, two ranks of one thread each,
several seeds, the two programs in turn.

    tests/bench/accuracy_vs_python.py [--build build] [--seeds 3] [--epochs 3] [--model netresdeep] [--json FILE]

Prints a line for each run, the means, and ends with 1 if they are further apart than --within points.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
DEADLINE_S = 6 * 3600
RATES = {"netresdeep": "0.008", "resnet18": "0.05"}


def run(command):
    done = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=DEADLINE_S
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return done.stdout


def ours(build, recipe, seed):
    with tempfile.TemporaryDirectory() as folder:
        run(
            [build / "bin/ddprun", "--standalone", "--nproc-per-node", "2", "train", *recipe, "--seed", seed]
            + ["--dataset", "fashion-mnist", "--nesterov", "--augment", "--output-dir", folder]
        )
        return json.loads((pathlib.Path(folder) / "summary.json").read_text())


def theirs(recipe, seed):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return json.loads(run([*torchrun, HERE / "accuracy_peer.py", *recipe, "--seed", seed]).strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parents[1] / "build")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", default="3")
    parser.add_argument("--model", choices=RATES, default="netresdeep")
    parser.add_argument("--batch-size", default="32")
    parser.add_argument("--within", type=float, default=0.5, help="points")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    recipe = ["--model", options.model, "--epochs", options.epochs, "--batch-size", options.batch_size]
    recipe += ["--lr", RATES[options.model], "--warmup-epochs", "0.15"]
    results = {"train": [], "python": []}
    for seed in range(options.seeds):
        for name, result in (("train", ours(options.build, recipe, str(seed))), ("python", theirs(recipe, str(seed)))):
            results[name].append(100 * result["test_accuracy"])
            print(
                f"seed {seed} {name:6} {100 * result['test_accuracy']:.2f} % in {result['training_seconds']:.0f} s",
                flush=True,
            )
    means = {name: statistics.mean(values) for name, values in results.items()}
    apart = means["train"] - means["python"]
    print(f"mean of {options.seeds}: train {means['train']:.2f} %, python {means['python']:.2f} %, apart {apart:+.2f}")
    if options.json:
        options.json.write_text(json.dumps({"recipe": recipe, "accuracies": results, "apart": apart}, indent=2))
    sys.exit(0 if abs(apart) <= options.within else 1)


if __name__ == "__main__":
    main()
