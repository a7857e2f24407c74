# SPDX-License-Identifier: Apache-2.0
"""The benchmark runs and reports every figure. What the figures are worth is for a person to judge, not for a test."""

import json
import os
import sys

from conftest import REPO, run


def test_start_beside_torchrun(tmp_path):
    report = tmp_path / "report.json"
    script = REPO / "tests" / "bench" / "start_vs_torchrun.py"

    env = dict(os.environ)  # DDPRUN_BUILD_DIR must reach it
    done = run([sys.executable, script, "--repeats", "2", "--json", report], env=env)
    assert done.returncode == 0, done.stderr
    figures = json.loads(report.read_text())
    for name in ("ddprun", "torchrun"):
        for unit in ("wall_s", "memory_mib"):
            assert 0 < figures[f"{name}_{unit}"]["min"] <= figures[f"{name}_{unit}"]["median"]
    print(done.stdout)
