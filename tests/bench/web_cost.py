#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ten open pages of `ddpctl web` cost the rendezvous service.

    tests/bench/web_cost.py [--pairs 15] [--nodes 64] [--pages 10]

A run of two workers that print ten lines a second is shown by `ddpctl web`. Another run of the same service starts, as in
start_many.py: its nodes join, learn their ranks, get rank 0's id and pass a barrier; alone, and beside the pages, in turn. Shows the
medians in ms with the least and the most, and of the pairs the ratio alone / beside.
"""

import argparse
import contextlib
import http.client
import os
import statistics
import subprocess
import threading
import time
import urllib.parse

from start_many import AGENTS, BUILD, RANKS, report_of, service

DDPRUN, DDPCTL = BUILD / "bin" / "ddprun", BUILD / "bin" / "ddpctl"
DEADLINE_S = 60


@contextlib.contextmanager
def watched_run(target, env):
    words = ["--nnodes", "1", "--nproc-per-node", "2", "--insecure", "--rdzv-endpoint", target, "--rdzv-id", "watched"]
    prints = ["sh", "-c", "echo begins; while sleep 0.1; do echo a line; done"]
    process = subprocess.Popen([DDPRUN, *words, *prints], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    process.stdout.readline()
    threading.Thread(target=process.stdout.read, daemon=True).start()
    try:
        yield
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


@contextlib.contextmanager
def pages(count, target, env):
    command = [DDPCTL, "web", "--insecure", "--rdzv-endpoint", target, "--rdzv-id", "watched"]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    url = urllib.parse.urlsplit(process.stdout.readline().strip())

    def ask(path, **headers):
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=DEADLINE_S)
        connection.request("GET", path, headers=headers)
        return connection.getresponse()

    def read(stream):
        with contextlib.suppress(OSError, ValueError):
            while stream.readline():
                pass

    cookie = ask(f"/?{url.query}").headers["Set-Cookie"].split(";")[0]
    for _ in range(count):
        stream = ask("/events", Cookie=cookie)
        assert stream.status == 200 and stream.readline() == b"event: whole\n"
        threading.Thread(target=read, args=(stream,), daemon=True).start()
    try:
        yield
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--pages", type=int, default=10)
    options = parser.parse_args()
    env = {name: value for name, value in os.environ.items() if name != "DDPRUN_TOKEN"}
    with service(["--insecure"], env) as (process, target), watched_run(target, env):

        def exchange(name):
            command = [AGENTS, "--target", target, "--run-id", name, "--nodes", options.nodes, "--ranks", RANKS]
            flags = ["--connections", 64, "--service-pid", process.pid, "--at-once", 1_000_000, "--insecure"]
            return 1e3 * report_of([*command, *flags], env)["total_s"]

        exchange("warm")
        times = []
        for pair in range(options.pairs):
            alone = exchange(f"alone-{pair}")
            with pages(options.pages, target, env):
                time.sleep(0.5)  # what pages get at first is not what they cost
                times.append((alone, exchange(f"beside-{pair}")))
    for name, column in zip(("alone", f"beside {options.pages} pages"), zip(*times)):
        print(f"{name:16} {statistics.median(column):6.1f} ms ({min(column):.1f} to {max(column):.1f})")
    ratios = [alone / beside for alone, beside in times]
    print(f"ratio            {statistics.median(ratios):6.2f}    ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
