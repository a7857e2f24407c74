# SPDX-License-Identifier: Apache-2.0
"""Starts of many simulated nodes: every rank is given once, and a node says little. How long it takes is not judged."""

import json
import os
import sys

from conftest import BUILD, REPO, run

# Join, the id's question with the greeting, the first worker's arrival, the others', a wait; and of the last node to
# arrive the word that all are there.
MESSAGES_MAX = 6
HEARTBEAT_S = 2.5


def test_starts_of_64_and_256_nodes(tmp_path):
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
                assert 4 <= start["messages_mean"]["min"] <= start["messages_max"]["max"] <= MESSAGES_MAX + beats
    print(done.stdout)
