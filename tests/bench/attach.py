#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How late `ddpctl attach` shows a line of a detached run, and how long `ddprun --detach` takes to return.

    tests/bench/attach.py [--lines 1000] [--starts 30]

The worker prints the machine's monotonic clock every 10 ms; a line is as old as that is when it is read from attach. Prints the
median, the 99th percentile and the most, in milliseconds.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

BUILD = pathlib.Path(os.environ.get("DDPRUN_BUILD_DIR", pathlib.Path(__file__).resolve().parents[2] / "build"))
DDPRUN, DDPCTL = str(BUILD / "bin" / "ddprun"), str(BUILD / "bin" / "ddpctl")
WORKER = "import sys, time\nfor _ in range(int(sys.argv[1])): print(time.monotonic(), flush=True); time.sleep(0.01)"


def show(what, seconds):
    cuts = statistics.quantiles(seconds, n=100)
    print(f"{what}: median {1e3 * cuts[49]:.1f}, p99 {1e3 * cuts[98]:.1f}, most {1e3 * max(seconds):.1f} ms ({len(seconds)} samples)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--starts", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as state:
        env = dict(os.environ, XDG_STATE_HOME=state)
        starts = []
        for _ in range(options.starts):
            begin = time.monotonic()
            subprocess.run([DDPRUN, "--detach", "true"], env=env, check=True, capture_output=True)
            starts.append(time.monotonic() - begin)
        show("ddprun --detach returns", starts)
        worker = ["--no-python", sys.executable, "-c", WORKER, str(options.lines)]
        subprocess.run([DDPRUN, "--detach", *worker], env=env, check=True, capture_output=True)
        late = []
        with subprocess.Popen([DDPCTL, "attach"], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as attached:
            for line in attached.stdout:
                late.append(time.monotonic() - float(line.split()[-1]))
        show("a line is shown", late[1:])  # the first may have been there before


if __name__ == "__main__":
    sys.exit(main())
