#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What certificates and TLS add to the start and end of two nodes that do nothing.

    tests/bench/start_with_tls.py [--repeats 40] [--build build]

Two services run side by side, one in plain text; the nodes join each in turn.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--build", default=str(pathlib.Path(__file__).resolve().parents[2] / "build"))
    arguments = parser.parse_args()
    ddprun = str(pathlib.Path(arguments.build) / "bin" / "ddprun")
    env = dict(os.environ, DDPRUN_TOKEN=os.urandom(32).hex())
    modes = {"plain text": ["--insecure"], "TLS": []}
    services, targets, times = [], {}, {mode: [] for mode in modes}
    try:
        for mode, flags in modes.items():
            command = [ddprun + "-rendezvous", "--port", "0", *flags]
            services.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True))
            targets[mode] = services[-1].stdout.readline().split()[-1]
        for i in range(arguments.repeats):
            for mode, flags in modes.items():
                node = [ddprun, *flags, "--nnodes=2", f"--rdzv-endpoint={targets[mode]}", f"--rdzv-id={i}", "true"]
                begin = time.monotonic()
                nodes = [subprocess.Popen(node, env=env) for _ in range(2)]
                if [process.wait(60) for process in nodes] != [0, 0]:
                    return 1
                times[mode].append(time.monotonic() - begin)
    finally:
        for service in services:
            service.terminate()
            service.wait(30)
    for mode, seen in times.items():
        print(f"{mode:10} {statistics.median(seen) * 1000:6.1f} ms ({min(seen) * 1000:.1f} to {max(seen) * 1000:.1f})")
    extra = [tls - plain for plain, tls in zip(times["plain text"], times["TLS"])]
    print(f"TLS adds   {statistics.median(extra) * 1000:6.1f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
