#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Eight talkative workers, each line to a file and to the console: ddprun beside torchrun, in turn, in one run.

    tests/bench/logs_vs_torchrun.py [--repeats 3] [--lines 100000] [--json FILE]

console: lines a second and MB a second that arrive, from the first byte to the end of the command; every line must.
workers: mean of the seconds that a worker itself takes to say all it has to say. cpu: processor seconds of the launcher
and the workers together. All with --tee 3 --log-dir; the console is a pipe that is read as fast as it goes. Medians.
Run it with the Python that has torch (deploy/setup.sh prints it).
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

BUILD = pathlib.Path(os.environ.get("DDPRUN_BUILD_DIR", pathlib.Path(__file__).resolve().parents[2] / "build"))
LAUNCHERS = {
    "ddprun": [str(BUILD / "bin" / "ddprun"), "--standalone"],
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--no-python", "--master-addr=127.0.0.1"],
}
WORKERS = 8
TEXT = "x" * 99


def measure(command, lines, folder):
    """Figures of one run: dict by name."""
    worker = (
        f"from=$(date +%s.%N); yes {TEXT} | head -n {lines}; to=$(date +%s.%N); "
        f"echo $from $to > {folder}/time_$LOCAL_RANK"
    )
    flags = [f"--nproc-per-node={WORKERS}", "--tee=3", f"--log-dir={folder}/logs"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*command, *flags, "sh", "-c", worker], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    )
    begin = None
    seen_lines = seen_bytes = 0
    while data := os.read(process.stdout.fileno(), 1 << 20):
        begin = begin or time.monotonic()
        seen_lines += data.count(b"\n")
        seen_bytes += len(data)
    seconds = time.monotonic() - begin
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0 or seen_lines != WORKERS * lines:
        sys.exit(f"{command[0]} ended with {process.returncode} after {seen_lines} of {WORKERS * lines} lines")
    took = []
    for rank in range(WORKERS):
        first, last = (pathlib.Path(folder) / f"time_{rank}").read_text().split()
        took.append(float(last) - float(first))
    return {
        "lines_per_s": seen_lines / seconds,
        "mb_per_s": seen_bytes / seconds / 1e6,
        "workers_s": statistics.mean(took),
        "cpu_s": usage.ru_utime + usage.ru_stime,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--lines", type=int, default=100_000, help="of each worker")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()

    seen = {name: [] for name in LAUNCHERS}
    for _ in range(arguments.repeats):
        for name, command in LAUNCHERS.items():
            with tempfile.TemporaryDirectory() as folder:
                seen[name].append(measure(command, arguments.lines, folder))

    report = {"repeats": arguments.repeats, "workers": WORKERS, "lines": arguments.lines}
    figures = list(seen["ddprun"][0])
    print(f"{'':10}" + "".join(f"{figure:>16}" for figure in figures))
    for name, results in seen.items():
        report[name] = {figure: statistics.median(result[figure] for result in results) for figure in figures}
        print(f"{name:10}" + "".join(f"{report[name][figure]:16.4g}" for figure in figures))
    report["ratio"] = {figure: report["ddprun"][figure] / report["torchrun"][figure] for figure in figures}
    print(f"{'ratio':10}" + "".join(f"{report['ratio'][figure]:16.4g}" for figure in figures))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
