# SPDX-License-Identifier: Apache-2.0
"""`ddpctl chaos` against a real run: each fault is carried out, and the model is that of a run without faults."""

import json
import re

import pytest
from conftest import BIN, DDPRUN, TRAIN, clean_environment, processes_of_this_session, run, start, wait_for

pytestmark = pytest.mark.skipif(not (BIN / "train").exists(), reason="built without LibTorch")

DDPCTL = BIN / "ddpctl"
DEADLINE_S = 200
# Faults come after steps of a few milliseconds, and the run goes on for a while after the last one.
TRAINING = "--dataset synthetic --samples 4000 --model netresdeep --batch-size 4 --device cpu --no-eval --deterministic".split()
ENDLESS = ["sh", "-c", "while :; do sleep 0.1; done"]


def environment():
    return clean_environment(OMP_NUM_THREADS="1")


def train(folder, steps):
    return [TRAIN, *TRAINING, "--epochs", 100, "--max-steps", steps, "--checkpoint-every", 40, "--output-dir", folder]


def chaos(port, *flags):
    return run([DDPCTL, "chaos", "--rdzv-endpoint", f"127.0.0.1:{port}", *flags], timeout=DEADLINE_S)


def progress(port):
    answer = run([DDPCTL, "status", "--json", "--rdzv-endpoint", f"127.0.0.1:{port}"])
    runs = json.loads(answer.stdout)["runs"] if answer.returncode == 0 else []
    return runs and runs[0]["progress"]


def head(port, program, *flags):
    command = [DDPRUN, "--nproc-per-node", 2, "--max-restarts", 1000, "--rdzv-id", "job7"]
    return start([*command, "--rdzv-endpoint", f"127.0.0.1:{port}", *flags, *program], env=environment())


@pytest.fixture
def idle(port):
    node = head(port, ENDLESS)
    wait_for("the run", lambda: run([DDPCTL, "status", "--rdzv-endpoint", f"127.0.0.1:{port}"]).returncode == 0)
    yield node
    node.terminate()
    node.communicate(timeout=DEADLINE_S)


def test_asks_before_it_harms(idle, port):
    refused = chaos(port, "--count", 1, "--kinds", "kill")
    assert refused.returncode == 1
    assert refused.stderr == "ddpctl: chaos injects faults into run 'job7'; give --yes if that is wanted\n"
    assert "chaos:" not in refused.stdout


def test_a_wrong_command_line_is_named(port):
    wrong = chaos(port, "--kinds", "kill,flood")
    assert wrong.returncode == 2
    assert "there is no fault 'flood'; name some of kill, segv, term" in wrong.stderr


def test_a_run_without_a_secret_refuses(port):
    node = start([DDPRUN, "--insecure", "--rdzv-endpoint", f"127.0.0.1:{port}", *ENDLESS], env=environment())
    try:
        status = [DDPCTL, "status", "--insecure", "--rdzv-endpoint", f"127.0.0.1:{port}"]
        wait_for("the run", lambda: run(status).returncode == 0)
        refused = chaos(port, "--insecure", "--yes", "--count", 1)
        assert refused.returncode == 1
        assert refused.stderr.startswith("ddpctl: chaos needs a run with a secret; ")
    finally:
        node.terminate()
        _, errors = node.communicate(timeout=DEADLINE_S)
    assert "chaos:" not in errors


def test_a_fault_is_told_everywhere(port, tmp_path):
    events = tmp_path / "events"
    node = head(port, ENDLESS, "--event-log", events)
    try:
        wait_for("the run", lambda: run([DDPCTL, "status", "--rdzv-endpoint", f"127.0.0.1:{port}"]).returncode == 0)
        logs = start([DDPCTL, "logs", "-f", "--rdzv-endpoint", f"127.0.0.1:{port}"])
        done = chaos(port, "--yes", "--every", 0.3, "--for", 1.5, "--kinds", "kill", "job7")
        assert done.returncode == 0, done.stderr
    finally:
        node.terminate()
        _, errors = node.communicate(timeout=DEADLINE_S)
    told = logs.communicate(timeout=DEADLINE_S)[0]
    sentence = r"chaos: SIGKILL to rank \d \(pid \d+\), asked by ddpctl from \S+ \(127.0.0.1\)"
    assert re.search(sentence, errors), errors
    assert re.search(r"was killed by SIGKILL after [\d.]+ s \(chaos, asked by ddpctl from \S+ \(127.0.0.1\)\)", errors)
    assert re.search(sentence, told), told
    faults = [one for one in map(json.loads, events.read_text().splitlines()) if one["event"] == "fault"]
    assert len(faults) >= 1
    assert all(re.search(sentence, one["reason"]) for one in faults)


@pytest.mark.nightly
def test_each_kind_and_the_same_model(port, tmp_path):
    kinds = ["kill", "segv", "term", "stop", "slow", "disk", "files"]
    steps = 600
    node = head(port, train(tmp_path / "chaos", steps), "--spares", 1)
    try:
        wait_for("the first steps", lambda: ((progress(port) or {}).get("step") or 0) > 20, 120)
        report = tmp_path / "report.json"
        flags = ["--every", 0.5, "--count", len(kinds), "--lasting", 0.5, "--seed", 3, "--yes", "--report", report]
        done = chaos(port, *flags, "--kinds", ",".join(kinds))
        out, errors = node.communicate(timeout=DEADLINE_S)
    finally:
        node.kill()
    assert done.returncode == 0, done.stderr
    assert node.returncode == 0, errors
    told = json.loads(report.read_text())
    assert {fault["kind"] for fault in told["faults"]} == set(kinds)
    assert all(fault["done"] for fault in told["faults"]), told
    assert told["kinds"]["kill"]["lost_seconds"]["most"] > 0, told
    assert told["rank_seconds"]["training"] > 0
    assert f"seed: {told['seed']}" in done.stdout
    plain = run([DDPRUN, "--nproc-per-node", 2, *train(tmp_path / "plain", steps)], timeout=DEADLINE_S, env=environment())
    assert plain.returncode == 0, plain.stderr
    models = [(tmp_path / name / "cifar_net.pth").read_bytes() for name in ("chaos", "plain")]
    assert models[0] == models[1]
    wait_for("the end of all processes", lambda: not processes_of_this_session(), 20)
