#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The start of runs of many nodes with ten workers each, beside the same over c10d's TCPStore, in turn, in one run.

    tests/bench/start_many.py [--nodes 64 256 1024 4096 10000] [--repeats 3] [--json FILE]

A start: all nodes join at once, learn their ranks, each worker gets the id that rank 0 sets and passes a barrier (add,
set by the last, wait). The agents are simulated (tests/bench/simulated_agent.h): their sessions, streams and folders
are the real ones, their workers are not processes. The service is ddprun-rendezvous, a new one for each start. Three
ways to reach it: 64 connections that the nodes share, in plain text and with TLS, and a connection with TLS and a
certificate of its own for each node (of which 256 at a time are on their way in: here the handshakes' other ends, too,
have only these cores). TCPStore (start_many_tcpstore.cc) with a client for each node, of which a node's
ranks take turns, and, while so many fit on one machine, with a client for each rank as torchrun has it.

Times are seconds from the first node's begin to the last one's end, medians with the least and the most; "messages"
are those that a node sends to the service, heartbeats included (one for every 2.5 s that a start lasts). The line is
that of least squares through the medians.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(os.environ.get("DDPRUN_BUILD_DIR", pathlib.Path(__file__).resolve().parents[2] / "build"))
SERVICE = BUILD / "bin" / "ddprun-rendezvous"
AGENTS = BUILD / "tests" / "start_many"
TCPSTORE = BUILD / "tests" / "start_many_tcpstore"
RANKS = 10
TCPSTORE_CLIENTS_MAX = 10_240  # threads of one process
DEADLINE_S = 400
AT_ONCE_TLS = 256
OWN_TLS_REPEATED_MAX = 1024  # more take most of a minute: once

SHARED = "ddprun, 64 connections"
SHARED_TLS = "ddprun, 64 connections, TLS"
OWN_TLS = "ddprun, a connection and TLS each"
TCPSTORE_NODES = "TCPStore, a client for each node"
TCPSTORE_RANKS = "TCPStore, a client for each rank"


def own_authority(folder):
    """The flags for certificates of a user's own authority: they prove no node's id, so that nodes may share one."""

    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    openssl("req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.crt")
    openssl("req", "-newkey", "ed25519", "-nodes", "-subj", "/CN=node", "-keyout", "node.key", "-out", "node.csr")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    sign = ["x509", "-req", "-in", "node.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"]
    openssl(*sign, "-extfile", "names", "-out", "node.crt")
    return [f"--tls-cert={folder}/node.crt", f"--tls-key={folder}/node.key", f"--tls-ca={folder}/ca.crt"]


@contextlib.contextmanager
def service(flags, env):
    process = subprocess.Popen([SERVICE, "--port", "0", *flags], env=env, stdout=subprocess.PIPE, text=True)
    try:
        yield process, process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.wait(30)


def report_of(command, env):
    done = subprocess.run([str(word) for word in command], env=env, capture_output=True, text=True, timeout=DEADLINE_S)
    if done.returncode != 0:
        sys.exit(f"{command[0]} with {command[1:]} ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def start_of_ddprun(nodes, connections, flags, env, at_once=1_000_000):
    with service(flags, env) as (process, target):
        words = [word for flag in flags for word in flag.split("=")]
        command = [AGENTS, "--target", target, "--run-id", "many", "--nodes", nodes, "--ranks", RANKS]
        return report_of([*command, "--connections", connections, "--service-pid", process.pid, "--at-once", at_once, *words], env)


def start_of_tcpstore(nodes, clients_per_node):
    command = [TCPSTORE, "--nodes", nodes, "--ranks", RANKS, "--clients-per-node", clients_per_node]
    return report_of(command, dict(os.environ, TORCH_CPP_LOG_LEVEL="ERROR"))


def series(authority):
    """By name: what makes one start of so many nodes; None if that is more than fits."""
    plain = dict(os.environ)
    plain.pop("DDPRUN_TOKEN", None)
    secret = dict(plain, DDPRUN_TOKEN=os.urandom(32).hex())
    kinds = {
        SHARED: lambda nodes: start_of_ddprun(nodes, 64, ["--insecure"], plain),
        SHARED_TLS: lambda nodes: start_of_ddprun(nodes, 64, authority, plain),
        OWN_TLS: lambda nodes: start_of_ddprun(nodes, nodes, [], secret, AT_ONCE_TLS),
    }
    if TCPSTORE.exists():
        kinds[TCPSTORE_NODES] = lambda nodes: start_of_tcpstore(nodes, 1)
        kinds[TCPSTORE_RANKS] = (
            lambda nodes: start_of_tcpstore(nodes, RANKS) if nodes * RANKS <= TCPSTORE_CLIENTS_MAX else None
        )
    return kinds


def line_through(points):
    """Least squares, and how far from the line the points are: R^2 and the largest difference, in seconds."""
    if len(points) < 3:
        return None
    xs, ys = zip(*points)
    slope, intercept = statistics.linear_regression(xs, ys)
    rest = [y - (intercept + slope * x) for x, y in points]
    spread = sum((y - statistics.mean(ys)) ** 2 for y in ys)
    return {
        "s_at_0": intercept,
        "us_per_node": slope * 1e6,
        "r_squared": 1 - sum(r * r for r in rest) / spread,
        "most_off_s": max(map(abs, rest)),
    }


def summary_of(starts):
    fields = [name for name in starts[0] if isinstance(starts[0][name], (int, float))]
    return {
        name: {
            "median": statistics.median(start[name] for start in starts),
            "min": min(start[name] for start in starts),
            "max": max(start[name] for start in starts),
        }
        for name in fields
    }


def show(name, by_nodes, line):
    print(f"\n{name}")
    print("  nodes  total s                 ranks s   id s  messages    service: cpu s     MB    agents: cpu s")
    for nodes, summary in by_nodes.items():
        total = summary["total_s"]
        sent = summary.get("messages_mean")
        messages = f"{sent['median']:.2f} ({summary['messages_max']['max']})" if sent else ""
        print(
            f"  {nodes:5}  {total['median']:6.3f} ({total['min']:.3f} to {total['max']:.3f})"
            f"  {summary['ranks_known_s']['median']:7.3f} {summary['id_s']['median']:6.3f}  {messages:12}"
            f"  {summary['service_cpu_s']['median']:10.2f} {summary['service_mb']['median']:8.1f}"
            f"  {summary['agents_cpu_s']['median']:10.2f}"
        )
    if line:
        print(
            f"  line: {line['s_at_0']:.3f} s + {line['us_per_node']:.0f} us a node;"
            f" R^2 {line['r_squared']:.4f}, at most {line['most_off_s']:.3f} s off"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[64, 256, 1024, 4096, 10_000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", action="append", help="a part of the name of what to run; may be given again")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        kinds = series(own_authority(pathlib.Path(folder)))
        if arguments.only:
            kinds = {name: kind for name, kind in kinds.items() if any(part in name for part in arguments.only)}
        seen = {name: {nodes: [] for nodes in arguments.nodes} for name in kinds}
        for repeat in range(arguments.repeats):
            for nodes in arguments.nodes:
                for name, kind in kinds.items():
                    if name == OWN_TLS and repeat > 0 and nodes > OWN_TLS_REPEATED_MAX:
                        continue
                    start = kind(nodes)
                    if start is not None:
                        seen[name][nodes].append(start)

    report = {"repeats": arguments.repeats, "ranks": RANKS, "load": os.getloadavg()}
    for name, by_nodes in seen.items():
        summaries = {nodes: summary_of(starts) for nodes, starts in by_nodes.items() if starts}
        line = line_through([(nodes, summary["total_s"]["median"]) for nodes, summary in summaries.items()])
        report[name] = {"nodes": summaries, "line": line}
        show(name, summaries, line)
    if SHARED in report and TCPSTORE_NODES in report:
        print("\nTCPStore with a client for each node / ddprun over 64 connections:")
        for nodes in arguments.nodes:
            theirs, ours = (report[name]["nodes"][nodes]["total_s"]["median"] for name in (TCPSTORE_NODES, SHARED))
            print(f"  {nodes:5}  {theirs / ours:.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
