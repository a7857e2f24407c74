# SPDX-License-Identifier: Apache-2.0
"""--check-replicas changes nothing where nothing is damaged; damage that a worker reports is shown, and its node leaves
when it comes again."""

import json
import os
import signal
import sys

import pytest
from conftest import BIN, DDPRUN, TRAIN, clean_environment, processes_of_this_session, run, start, wait_for
from test_in_place import Nodes, check_samples, model_of, steps, trainers

needs_train = pytest.mark.skipif(not (BIN / "train").exists(), reason="built without LibTorch")

DEADLINE_S = 120
TRAINING = (
    "--dataset synthetic --samples 512 --model netresdeep --batch-size 8 --device cpu --deterministic --log-samples"
    " --epochs 3 --eval-every 1 --checkpoint-every 7"
).split()

# Reports what stands in the file damage-RANK.
WORKER = """
import os, pathlib, socket, time
sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
sender.connect(os.environ["DDPRUN_NOTIFY_SOCKET"])
file = pathlib.Path("damage-" + os.environ["RANK"])
step = 0
while True:
    step += 1
    damages = file.read_text() if file.exists() else "0"
    sender.send(f"STEP={step}\\nDAMAGED={damages}\\n".encode())
    time.sleep(0.05)
"""


@needs_train
def test_nothing_changes_where_nothing_is_damaged(tmp_path):
    for name, more in (("plain", []), ("checked", ["--check-replicas", "2"])):
        done = run(
            [DDPRUN, "--standalone", "--nproc-per-node", 2, TRAIN, *TRAINING, *more, "--output-dir", tmp_path / name],
            env=clean_environment(OMP_NUM_THREADS="1"),
        )
        assert done.returncode == 0, done.stderr
        assert "go back" not in done.stdout and "damaged" not in done.stdout
    checked, plain = tmp_path / "checked", tmp_path / "plain"
    assert model_of(checked) == model_of(plain)
    for rank in range(2):
        log = f"samples-{rank}.jsonl"
        assert (checked / log).read_bytes() == (plain / log).read_bytes()


@needs_train
def test_a_pipeline_is_refused():
    done = run([TRAIN, "--pipeline", 2, "--check-replicas", 2])
    assert done.returncode == 2
    assert "--check-replicas compares ranks that hold the whole model" in done.stderr


@needs_train
def test_ranks_that_end_between_checks_leave_no_trace(tmp_path):
    training = [TRAIN, *TRAINING, "--check-replicas", "3"]
    with Nodes(tmp_path) as nodes:
        plain = nodes.start(["--standalone", "--nproc-per-node", 2], [*training, "--output-dir", tmp_path / "plain"])
        assert plain.wait() == 0, plain.text()
        folder = tmp_path / "run"
        node = nodes.start(
            ["--standalone", "--nproc-per-node", 2, "--max-restarts", 9], [*training, "--output-dir", folder]
        )
        for victim in (1, 0):
            before = nodes.until(lambda: len(found := trainers(folder)) == 2 and found, "two ranks")
            at = max(steps(folder).values(), default=0)
            nodes.until(lambda at=at: min(steps(folder).values(), default=0) >= at + 4, "four steps")
            os.kill(before[victim], signal.SIGKILL)
            nodes.until(
                lambda victim=victim, before=before: (
                    len(found := trainers(folder)) == 2 and found[victim] != before[victim]
                ),
                "another rank in its place",
            )
        assert node.wait() == 0, node.text()
        assert "go back" not in node.text()
    check_samples(folder, 3)
    assert model_of(folder) == model_of(tmp_path / "plain")
    assert not processes_of_this_session()


def test_a_node_that_is_damaged_twice_leaves_for_a_spare(tmp_path, port):
    service = start([BIN / "ddprun-rendezvous", "--port", port, "--event-log", tmp_path / "events"])
    endpoint = f"127.0.0.1:{port}"
    job = [
        start(
            [DDPRUN, "--nnodes", 2, "--rdzv-endpoint", endpoint, "--rdzv-id", "job", "--rdzv-conf", "is_host=false"]
            + ["--no-python", sys.executable, "-c", WORKER],
            cwd=tmp_path,
        )
        for _ in range(3)
    ]

    def status():
        answer = run([BIN / "ddpctl", "status", "--json", "--rdzv-endpoint", endpoint])
        runs = json.loads(answer.stdout)["runs"] if answer.returncode == 0 else []
        return runs[0] if runs else None

    def damages():
        progress = (status() or {}).get("progress") or {}
        return progress.get("damages"), progress.get("damaged_rank")

    try:
        wait_for("a check without damage", lambda: damages() == (0, None), DEADLINE_S)
        (tmp_path / "damage-1").write_text("1")
        wait_for("the status", lambda: damages() == (1, 1), DEADLINE_S)
        text = run([BIN / "ddpctl", "status", "--rdzv-endpoint", endpoint]).stdout
        assert "  the memory of rank 1 on host " in text and " was found to be damaged\n" in text, text
        (tmp_path / "damage-1").write_text("2")
        gone = wait_for("the end of a node", lambda: [one for one in job if one.poll() is not None], DEADLINE_S)
        assert [one.returncode for one in gone] == [0]
        said = gone[0].stderr.read()
        assert "was drained by --check-replicas: the memory of rank 1 on host" in said, said
        wait_for("the next round", lambda: (now := status()) and now["round"] == 2 and now["world_size"] == 2)
        events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
        damaged = [event for event in events if event["event"] == "rank.damaged"]
        assert [event["rank"] for event in damaged[:2]] == [1, 1], damaged
        assert "check the memory of that machine" in damaged[0]["reason"]
        assert "takes its place" in damaged[1]["reason"]
    finally:
        for one in [*job, service]:
            one.terminate()
        for one in [*job, service]:
            one.wait(DEADLINE_S)
