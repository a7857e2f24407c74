#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workers that go on, on a machine with far too much to do, and then one that does not: no alarm, then one.

    tests/chaos/hangs.py [--seconds 600] [--load 4] [--hang-timeout 5] [--rounds 3] [--build build]

A run of as many workers as there are CPUs tells of a step every 20 ms, while LOAD busy processes for each CPU take the
time away. Each round lasts SECONDS / ROUNDS; at its end one worker is stopped, and the run must end with 124 and name
that worker, and no other before it. Prints false alarms, hangs found, and how long after its limit each was named.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[1]
SLACK_S = 60  # for stacks, symbols and a machine that is this busy


def busy_processes(count):
    return [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]


def pids_of(run, workers):
    pids = {}
    while len(pids) < workers:
        line = run.stdout.readline()
        if not line:
            raise SystemExit("the run ended before its workers had begun")
        # "[2] pid=77 steady", or "pid=77 steady" of a worker alone
        if "pid=" in line:
            rank = int(line[1 : line.index("]")]) if line.startswith("[") else 0
            pids[rank] = int(line.split("pid=")[1].split()[0])
    return pids


def one_round(build, workers, seconds, hang_timeout, chance, folder):
    verdict = folder / "verdict"
    run = subprocess.Popen(
        [build / "bin/ddprun", "--log-fold", "never", "--hang-timeout", str(hang_timeout), "--verdict-file", verdict]
        + ["--nproc-per-node", str(workers), build / "tests/hanging_worker", "steady"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        pids = pids_of(run, workers)
        try:
            run.wait(seconds)
            return {"false_alarm": json.loads(verdict.read_text())["cause"]["sentence"]}
        except subprocess.TimeoutExpired:
            pass
        victim = chance.randrange(workers)
        os.kill(pids[victim], signal.SIGSTOP)
        began = time.monotonic()
        code = run.wait(hang_timeout + SLACK_S)
        took = time.monotonic() - began
        cause = json.loads(verdict.read_text())["cause"]
        right = code == 124 and cause["rank"] == victim
        return {"found": right, "late_s": took - hang_timeout, "cause": cause["sentence"]}
    finally:
        run.terminate()
        run.communicate()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--load", type=int, default=4, help="busy processes for each CPU")
    parser.add_argument("--hang-timeout", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--build", default=os.environ.get("DDPRUN_BUILD_DIR", REPO / "build"))
    arguments = parser.parse_args()
    build = pathlib.Path(arguments.build).resolve()
    chance = random.Random(arguments.seed)
    cpus = len(os.sched_getaffinity(0))
    load = busy_processes(arguments.load * cpus)
    results = []
    try:
        for _ in range(arguments.rounds):
            with tempfile.TemporaryDirectory() as folder:
                results.append(
                    one_round(
                        build,
                        cpus,
                        arguments.seconds / arguments.rounds,
                        arguments.hang_timeout,
                        chance,
                        pathlib.Path(folder),
                    )
                )
    finally:
        for process in load:
            process.kill()
            process.wait()
    alarms = [result["false_alarm"] for result in results if "false_alarm" in result]
    found = [result for result in results if result.get("found")]
    wrong = [result["cause"] for result in results if result.get("found") is False]
    print(f"{arguments.seconds:.0f} s with {arguments.load} busy processes a CPU: {len(alarms)} false alarms")
    print(f"hangs: {len(found)} of {len(results) - len(alarms)} found, and the right worker named")
    if found:
        late = sorted(result["late_s"] for result in found)
        print(f"named and ended after their limit of {arguments.hang_timeout:g} s: {late[0]:.2f} to {late[-1]:.2f} s")
    for sentence in alarms + wrong:
        print(f"  {sentence}")
    return 1 if alarms or wrong or not found else 0


if __name__ == "__main__":
    sys.exit(main())
