# SPDX-License-Identifier: Apache-2.0
"""Starts of many simulated nodes: every rank is given once, and a node says little. How long it takes is not judged."""

import json
import os
import sys

from conftest import BUILD, REPO, run

# Join; the first worker's request for the id, with the greeting, and the others' in one; the first arrival and the
# others'; a wait. The node that sets the id, and the last one to arrive, which sets the barrier's key, send up to two more.
MESSAGES_MAX = 8
MESSAGES_MEAN_MAX = 6.1
HEARTBEAT_S = 2.5


def test_starts_of_64_and_256_nodes(tmp_path):
    built = run(["cmake", "--build", BUILD, "--target", "bench"], env=dict(os.environ), timeout=900)
    assert built.returncode == 0, built.stdout[-4000:]
    report = tmp_path / "report.json"
    script = REPO / "tests" / "bench" / "start_many.py"
    only = [] if (BUILD / "tests" / "start_many_tcpstore").exists() else ["--only", "ddprun"]

    command = [sys.executable, script, "--nodes", "64", "256", "--repeats", "1", "--json", report, *only]
    done = run(command, env=dict(os.environ), timeout=240)

    assert done.returncode == 0, done.stderr
    kinds = {name: kind for name, kind in json.loads(report.read_text()).items() if isinstance(kind, dict)}
    assert len([name for name in kinds if "ddprun" in name]) == 3
    for name, kind in kinds.items():
        for nodes in ("64", "256"):
            start = kind["nodes"][nodes]
            assert start["nodes"]["min"] == int(nodes)
            assert start["ranks_right"]["min"] == 1
            if "ddprun" in name:
                beats = int(start["total_s"]["max"] / HEARTBEAT_S)
                assert 4 <= start["messages_mean"]["min"] <= MESSAGES_MEAN_MAX + beats
                assert start["messages_max"]["max"] <= MESSAGES_MAX + beats
    print(done.stdout)
