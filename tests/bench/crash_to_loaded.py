#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long after the kill -9 of a rank all ranks have the newest checkpoint in their parameters again.

    tests/bench/crash_to_loaded.py [--kills 20] [--model resnet18] [--batch-size 16] [--json FILE]

One run of two ranks of one thread each, with a checkpoint of parameters and momentum at each step; now and then one of
the ranks is killed. The time is from the kill until rank 0 says what it goes on from, which it does when all ranks have
loaded it: the notice of the death, the end of the other rank, the new processes with their libraries, their meeting, the
data set, and the load with every checksum compared. "anew": until the new processes run, of the same moments.
"""

import argparse
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from processes import below

BUILD = pathlib.Path(os.environ.get("DDPRUN_BUILD_DIR", pathlib.Path(__file__).resolve().parents[2] / "build"))
DEADLINE_S = 900


def workers(root):
    """The processes named train below `root`."""
    return {pid for pid, (name, _) in below(root).items() if name == "train"}


def ms(values):
    return f"{statistics.median(values):.0f} ms ({min(values):.0f} to {max(values):.0f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch-size", default="16")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    chance = random.Random(1)
    loaded, anew = [], []
    with tempfile.TemporaryDirectory() as folder:
        command = [BUILD / "bin/ddprun", "--standalone", "--nproc-per-node", "2"]
        command += ["--max-restarts", str(options.kills), "train"]
        command += ["--model", options.model, "--batch-size", options.batch_size, "--dataset", "fashion-mnist"]
        command += ["--epochs", "1000", "--no-eval", "--log-every", "1", "--checkpoint-every", "1"]
        command += ["--output-dir", folder]
        run = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        stopper = threading.Timer(DEADLINE_S, run.kill)
        stopper.start()
        killed, steps = None, 0
        for line in run.stdout:
            if killed is not None and line.startswith("[0]") and "goes on from" in line:
                loaded.append(1000 * (time.monotonic() - killed))
                killed, steps = None, 0
                if len(loaded) == options.kills:
                    break
            steps += bool(re.match(r"\[0\].* batch \d+/", line))
            if killed is None and steps == 4:
                old = workers(run.pid)
                killed = time.monotonic()
                os.kill(chance.choice(sorted(old)), 9)
                # Until the run has ended, if it comes to that: `stopper` sees to it.
                while len(workers(run.pid) - old) < 2 and run.poll() is None:
                    time.sleep(0.001)
                anew.append(1000 * (time.monotonic() - killed))
        run.terminate()
        run.communicate()
        stopper.cancel()
    if len(loaded) < options.kills:
        sys.exit(f"the run ended after {len(loaded)} of {options.kills} kills")
    print(f"{options.model}, {len(loaded)} kills: loaded after {ms(loaded)}; the new processes run after {ms(anew)}")
    if options.json:
        options.json.write_text(json.dumps({"loaded_ms": loaded, "anew_ms": anew}, indent=2) + "\n")


if __name__ == "__main__":
    main()
