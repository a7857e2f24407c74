# SPDX-License-Identifier: Apache-2.0
"""Progress of Python programs and of `train`, and hangs as a person meets them."""

import json
import subprocess

import pytest

from conftest import BIN, DDPRUN, TRAIN, clean_environment, finish_all, run, start, wait_for

DEADLINE_S = 120

# As launcher/README.md has it.
TELL = """
import os, socket
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.setblocking(False)

def progress(**words):
    if path := os.environ.get("DDPRUN_NOTIFY_SOCKET"):
        try:
            notify.sendto("\\n".join(f"{k}={v}" for k, v in words.items()).encode(), path)
        except OSError:
            pass
"""

LOOP = TELL + """
import signal
def forward_for_ever():
    while True:
        pass
progress(STEP=12, SECTION="data")
print("told", flush=True)
forward_for_ever()
"""

STEPS = TELL + """
import time
for step in range(10**9):
    progress(STEP=step, EPOCH=2, RATE=155.25, UNIT="images", SECTION="data")
    time.sleep(0.02)
"""


def status(port):
    answer = run([BIN / "ddpctl", "status", "--json", "--rdzv-endpoint", f"127.0.0.1:{port}"])
    return json.loads(answer.stdout)["runs"] if answer.returncode == 0 else []


def test_a_python_loop_is_named_with_its_stack(tmp_path):
    program = tmp_path / "loop.py"
    program.write_text(LOOP)
    done = run([DDPRUN, "--hang-timeout", 1, "--verdict-file", tmp_path / "verdict", program])
    assert done.returncode == 124, done.stderr
    cause = json.loads((tmp_path / "verdict").read_text())["cause"]
    assert cause["kind"] == "worker_hung"
    assert (cause["hang"]["step"], cause["hang"]["section"]) == (12, "data")
    stack = "\n".join(cause["hang"]["stack"])
    assert "thread" in stack and "#0 " in stack, stack
    assert "py-spy" in stack or "forward_for_ever" in stack, stack


def test_status_shows_what_a_python_program_tells(tmp_path, port):
    program = tmp_path / "steps.py"
    program.write_text(STEPS)
    job = start([DDPRUN, "--rdzv-endpoint", f"127.0.0.1:{port}", "--nproc-per-node", 2, program])
    try:
        told = wait_for(
            "progress", lambda: [r for r in status(port) if r["progress"] and r["progress"]["step"] > 5], DEADLINE_S
        )
        assert told[0]["progress"]["epoch"] == 2
        assert told[0]["progress"]["rate"] == 2 * 155.25
        assert told[0]["progress"]["rate_unit"] == "images"
        assert told[0]["nodes"][0]["progress"]["section"] == "data"
        text = run([BIN / "ddpctl", "status", "--rdzv-endpoint", f"127.0.0.1:{port}"]).stdout
        assert "epoch 2" in text and "images/s" in text and "DOING" in text, text
    finally:
        job.terminate()
        finish_all([job])


@pytest.mark.skipif(not (BIN / "train").exists(), reason="built without LibTorch")
def test_train_tells_of_its_progress(tmp_path, port):
    job = start(
        [DDPRUN, "--rdzv-endpoint", f"127.0.0.1:{port}", "--nproc-per-node", 2, TRAIN, "--dataset", "synthetic"]
        + ["--model", "netresdeep", "--epochs", 50, "--batch-size", 8, "--output-dir", tmp_path / "out"]
    )
    try:
        told = wait_for(
            "progress",
            lambda: [r for r in status(port) if r["progress"] and (r["progress"]["rate"] or 0) > 0],
            DEADLINE_S,
        )
        progress = told[0]["progress"]
        assert progress["step"] > 0 and progress["epoch"] >= 1 and progress["rate_unit"] == "images"
        assert progress["section"] in ("data", "forward", "backward, all_reduce", "all_reduce", "optimizer", "other")
    finally:
        job.terminate()
        finish_all([job])
