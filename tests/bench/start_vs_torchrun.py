#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Start and end of two workers that do nothing: ddprun beside torchrun, in turn, in one run.

    tests/bench/start_vs_torchrun.py [--repeats 10] [--json FILE]

wall: from the command's start to its end, seconds. memory: peak resident set of the launcher's largest process, as
the kernel accounts it (ru_maxrss over the process and its waited-for children). Medians with the least and the most
seen, and the ratio of the medians. Run it with the Python that has torch (deploy/setup.sh prints it).
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

BUILD = pathlib.Path(os.environ.get("DDPRUN_BUILD_DIR", pathlib.Path(__file__).resolve().parents[2] / "build"))
COMMANDS = {
    "ddprun": [str(BUILD / "bin" / "ddprun"), "--standalone", "--nproc-per-node", "2", "true"],
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--no-python", "true"],
}


def measure(command):
    """(wall seconds, peak MiB) of one run that must succeed."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}: {errors.decode()}")
    return time.monotonic() - begin, usage.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()

    seen = {name: [] for name in COMMANDS}
    for repeat in range(arguments.repeats + 1):
        for name, command in COMMANDS.items():
            result = measure(command)
            if repeat > 0:  # the first pair warms the page cache
                seen[name].append(result)

    report = {"repeats": arguments.repeats}
    print(f"{'':10} {'wall s: median (min..max)':32} {'memory MiB: median (min..max)':32}")
    for name, results in seen.items():
        columns = []
        for index, unit in ((0, "wall_s"), (1, "memory_mib")):
            values = [result[index] for result in results]
            report[f"{name}_{unit}"] = {
                "median": statistics.median(values), "min": min(values), "max": max(values)
            }
            columns.append(f"{statistics.median(values):.4f} ({min(values):.4f}..{max(values):.4f})")
        print(f"{name:10} {columns[0]:32} {columns[1]:32}")
    for unit in ("wall_s", "memory_mib"):
        ratio = report[f"torchrun_{unit}"]["median"] / report[f"ddprun_{unit}"]["median"]
        report[f"ratio_{unit}"] = ratio
        print(f"torchrun / ddprun, {unit}: {ratio:.1f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
