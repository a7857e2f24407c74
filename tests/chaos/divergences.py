#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks of a Python program whose collectives do not match: how often is the right rank named, and the right collective?

    tests/chaos/divergences.py [--times 300] [--seed 1] [--timeout 3] [--ranks 4] [--build build] [--python PYTHON]

One run with so many restarts: in each round one rank sleeps, misses a collective, gives another shape, takes another order
or another group (divergent_worker.py), and Gloo's timeout ends the round. `round.broken` of the event log is held against
what was injected. Prints each wrong sentence, and the right ones of all, by kind.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from divergent_worker import plan

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[1]
ROUND_S = 60  # at most
RIGHT_SHARE_MIN = 0.8  # below what chance does to a few rounds: 99 % are right in many


def ranks_in(text):
    """ "ranks 0-1, 3" """
    found = set()
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        found.update(range(int(first), int(last or first) + 1))
    return found


RANKS = r"(ranks? \d[\d, -]*?)"


def judge(sentence, guilty, calls):
    """The collective that went wrong is named, and of all ranks the guilty one alone as the one that differs."""
    name, number = calls[-1][0], str(len(calls))
    if found := re.fullmatch(rf"{RANKS} has called (\w+) (\d+) .* where {RANKS} ha(?:s|ve) called (\w+) (\d+) .*", sentence):
        return ranks_in(found[1]) == {guilty} and (found[5], found[6]) == (name, number)
    if found := re.match(rf"{RANKS} waits? in (\w+) (\d+) ", sentence):
        behind = re.findall(rf"; {RANKS} (?:has not begun it|waits in .* of group 1)", sentence)
        return [ranks_in(one) for one in behind] == [{guilty}] and (found[2], found[3]) == (name, number)
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=3)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--build", type=pathlib.Path, default=REPO / "build")
    parser.add_argument("--python", default=sys.executable, help="with torch")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "events"
        command = [options.build / "bin/ddprun", "--standalone", "--nproc-per-node", options.ranks]
        command += ["--max-restarts", options.times - 1, "--preload", "torch", "--event-log", log]
        command += [HERE / "divergent_worker.py", options.seed, options.timeout]
        environment = {**os.environ, "PYTHON_EXEC": options.python, "OMP_NUM_THREADS": "1"}
        subprocess.run(
            [str(word) for word in command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=options.times * ROUND_S,
        )
        events = [json.loads(line) for line in log.read_text().splitlines()]
    right, all_of = collections.Counter(), collections.Counter()
    for event in events:
        if event["event"] != "round.broken":
            continue
        kind, guilty, calls = plan(options.seed, event["round"], options.ranks)
        sentence = event.get("collectives", "")
        is_right = judge(sentence, guilty, calls)
        right[kind] += is_right
        all_of[kind] += 1
        if not is_right:
            print(f"round {event['round']}: {kind}, rank {guilty}, {calls[-1][0]} {len(calls)}: {sentence or event['reason']}")
    for kind in sorted(all_of):
        print(f"{kind:10} {right[kind]} of {all_of[kind]}")
    print(f"{'all':10} {right.total()} of {all_of.total()}")
    if all_of.total() < options.times:
        sys.exit(f"the run ended after {all_of.total()} of {options.times} rounds")
    if right.total() < RIGHT_SHARE_MIN * all_of.total():
        sys.exit(f"less than {RIGHT_SHARE_MIN:.0%} are right")


if __name__ == "__main__":
    main()
