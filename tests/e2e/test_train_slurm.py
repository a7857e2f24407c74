# SPDX-License-Identifier: Apache-2.0
"""`sbatch deploy/train.slurm` on a real Slurm of two nodes: to the end, and through an interruption."""

import contextlib
import glob
import os
import pathlib
import re
import socket

import pytest
from conftest import BIN, REPO, TRAIN, clean_environment, run, wait_for
from slurm_cluster import DAEMONS, slurm  # noqa: F401  (a fixture)

SCRIPT = REPO / "deploy" / "train.slurm"
SMALL = ["--dataset", "synthetic", "--samples", "4096", "--batch-size", "8", "--log-every", "1", "--no-eval"]

pytestmark = pytest.mark.skipif(not os.path.exists(TRAIN), reason="built without LibTorch")


class Job:
    """A job of `sbatch deploy/train.slurm`, called in `folder`, on a cluster whose nodes are this machine."""

    def __init__(self, cluster, folder, *arguments, **variables):
        self.folder = folder
        self.cluster = cluster
        path = os.pathsep.join([os.path.dirname(DAEMONS["srun"]), os.environ["PATH"]])
        self.env = clean_environment(
            PATH=path, REPO=str(REPO), DDPRUN_BIN=str(BIN), MASTER_ADDR="127.0.0.1", NPROC_PER_NODE="1", OMP_NUM_THREADS="1"
        )
        del self.env["DDPRUN_TOKEN"]
        self.env.update(cluster.environment, **variables)
        done = self._slurm("sbatch", "--parsable", SCRIPT, *SMALL, *arguments)
        assert done.returncode == 0, done.stderr
        self.number = done.stdout.strip()
        self.output = folder / "runs" / self.number

    def _slurm(self, name, *arguments):
        return run([DAEMONS[name], *arguments], env=self.env, cwd=self.folder)

    def log(self):
        path = self.folder / f"train-{self.number}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def show(self):
        return self._slurm("scontrol", "show", "job", self.number).stdout

    def state(self):
        return re.search(r"JobState=(\w+)", self.show()).group(1)

    def near_its_limit(self):
        """What Slurm sends by --signal=B:USR1@120, now."""
        done = self._slurm("scancel", "--batch", "--signal=USR1", self.number)
        assert done.returncode == 0, done.stderr

    def cancel(self):
        self._slurm("scancel", "--signal=KILL", "--full", self.number)
        self._slurm("scancel", self.number)

    def wait_until(self, *states, timeout=120):
        def reached():
            state = self.state()
            if state in ("FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL") and state not in states:
                logs = [path.read_text(errors="replace")[-2000:] for path in self.cluster.folder.glob("slurm*.log")]
                raise AssertionError("\n".join([state, self.show(), self.log(), *logs]))
            return state in states

        wait_for(f"job {self.number} being {states}: {self.log()}", reached, timeout)


@pytest.fixture
def submit(slurm, tmp_path):  # noqa: F811
    jobs = []

    def job(*arguments, **variables):
        jobs.append(Job(slurm, tmp_path, *arguments, **variables))
        return jobs[-1]

    yield job
    for one in jobs:
        one.cancel()


def test_a_job_trains_on_both_nodes(submit):
    job = submit("--max-steps", "3")
    job.wait_until("COMPLETED")
    log = job.log()
    assert "attempt 0 on n[1-2]" in log and "ended with 0" in log, log
    assert len(re.findall(r"batch \d+/\d+ loss", log)) == 6, log  # three steps of two ranks
    assert (job.output / "cifar_net.pth").is_file()


def test_jobs_that_share_a_node_have_ports_of_their_own(submit):
    """While something else has torchrun's port, and each of the ports that the jobs' numbers give."""
    with contextlib.ExitStack() as held:
        hold(held, 29500)
        first = submit("--max-steps", "3")
        hold(held, 20000 + (int(first.number) + 1) * 31 % 10000)
        second = submit("--max-steps", "3")
        for job in (first, second):
            job.wait_until("COMPLETED")
            assert len(re.findall(r"batch \d+/\d+ loss", job.log())) == 6, job.log()


def hold(stack, port):
    """What has it already holds it as well."""
    with contextlib.suppress(OSError):
        stack.enter_context(socket.create_server(("127.0.0.1", port)))


@pytest.mark.skipif(bool(glob.glob("/dev/nvidia[0-9]*")), reason="this machine has a GPU")
def test_a_job_that_requires_gpus_does_not_train_without(submit):
    job = submit("--max-steps", "3", REQUIRE_GPU="1", NPROC_PER_NODE="")
    job.wait_until("FAILED")
    assert "GPU" in job.log() and "batch" not in job.log(), job.log()


def test_a_job_that_cannot_begin_says_why(submit, tmp_path):
    job = submit("--max-steps", "3", DDPRUN_BIN=str(tmp_path / "nowhere"))
    job.wait_until("FAILED")
    assert f"ddprun and train are not in {tmp_path}/nowhere" in job.log()


def test_a_failed_training_is_not_queued_again(submit):
    job = submit("--model", "resnet19")
    job.wait_until("FAILED")
    assert "resnet19" in job.log() and "queueing" not in job.log()


def test_near_its_limit_a_job_saves_and_goes_on_when_queued_again(submit):
    steps = 400
    job = submit("--max-steps", str(steps), "--batch-size", "4")
    wait_for("a step", lambda: "loss" in job.log())
    job.near_its_limit()
    wait_for("the second attempt being queued", lambda: "Restarts=1" in job.show())
    job.wait_until("COMPLETED")
    first, second = job.log().split("attempt 1 on n[1-2]")
    assert "the time limit is near" in first and f"queueing job {job.number} again" in first, first
    saved = int(re.search(r"goes on from .*, step (\d+)", second).group(1))
    assert 0 < saved < steps and re.search(r"checkpoint|resume", first), first
    for rank in (0, 1):
        before, after = ([int(step) for step in re.findall(rf":{rank}\] .* batch (\d+)/\d+ loss", part)] for part in (first, second))
        assert after == list(range(saved + 1, steps + 1)), (rank, saved, after)
        # A rank may have been a step further than rank 0; what is said of the signal may have cut the line of its last step.
        assert before == list(range(1, before[-1] + 1)) and before[-1] in (saved - 1, saved, saved + 1), (rank, saved, first)
    assert (job.output / "cifar_net.pth").is_file()


def test_after_the_last_of_its_attempts_it_ends(submit):
    job = submit("--max-steps", "100000", "--epochs", "1000", REQUEUE_MAX="0")
    wait_for("a step", lambda: "loss" in job.log())
    job.near_its_limit()
    job.wait_until("FAILED")
    assert "REQUEUE_MAX" in job.log()


def test_the_script_asks_for_what_its_text_says():
    text = SCRIPT.read_text()
    options = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?$", text, re.MULTILINE))
    assert options["ntasks-per-node"] == "1" and "requeue" in options and options["signal"] == "B:USR1@120"
    # Slurm stops reading at the first line that is no comment.
    head = text[: text.index("set -euo pipefail")]
    # Every variable that it reads is named there, and each that is named is read.
    named = set(re.findall(r"^#   ([A-Z_]+) ", head, re.MULTILINE)) | {"FETCH_DATA"}
    read = {name for name in re.findall(r"\$\{?([A-Z][A-Z_]+)", text[len(head) :]) if not name.startswith("SLURM_")}
    assert read - {"REPO", "DDPRUN_TOKEN"} == named
    assert text.count("\n#SBATCH") == head.count("\n#SBATCH") and os.access(SCRIPT, os.X_OK)
    assert pathlib.Path(REPO / "deploy" / "config.yaml").is_file()
