# SPDX-License-Identifier: Apache-2.0
"""A Job that Kueue suspends and resumes, as pods: what the Job's controller does then is in deploy/kubernetes/FACTS.md. All pods get
SIGTERM, end, and pods of the same indexes start from the same template, with the volume of before."""

import pathlib
import re

import pytest
import torch
from conftest import DDPRUN, TRAIN, clean_environment, run, torch_folder, wait_for
from pods import pod_of_job
from safetensors.torch import load_file
from test_kubernetes import job_that
from test_kubernetes_manifests import FOLDER, OVERLAYS, cluster, job_of, kustomized, tools  # noqa: F401  (fixtures)

# The length of the training must not matter to its steps: the run that nobody suspends ends sooner.
TRAINING = ["--model", "simple-cnn", "--dataset", "synthetic", "--samples", "256", "--batch-size", "4", "--epochs", "100000",
            "--schedule", "constant", "--no-eval", "--log-every", "1", "--checkpoint-every", "1000000", "--resume", "auto"]  # fmt: skip


@pytest.fixture(scope="session")
def queued(tools):  # noqa: F811
    return job_of(kustomized(tools, FOLDER / OVERLAYS["kueue"]))


def start(cluster, job, uid):  # noqa: F811
    return [pod_of_job(cluster, job, index, uid) for index in (0, 1)]


def suspend(pods):
    """The ends of the pods: SIGTERM to all, well before Kubernetes would kill them."""
    for pod in pods:
        pod.terminate()
    return [pod.wait(90) for pod in pods]


def of_train(cluster, queued):  # noqa: F811
    """The Job with `train`, which the image has with its LibTorch."""
    cluster.image_folders.append(pathlib.Path(torch_folder()).parent)
    job = job_that(of=queued)
    container = job["spec"]["template"]["spec"]["containers"][0]
    container["args"] = ["train", *TRAINING, "--output-dir", "/work/run"]
    container["env"].append({"name": "OMP_NUM_THREADS", "value": "1"})
    return job


def suspend_in_training(pods, folder, after):
    """The step that was saved: the last one that was made."""
    wait_for(
        f"a step after {after}: {pods[0].log()}",
        lambda: len(re.findall(r" batch \d+/", pods[0].log())) > 5 or pods[0].process.poll() is not None,
        120,
    )
    assert suspend(pods) == [143, 143], [pod.log() for pod in pods]
    # Rank 1 may have left the round before it could agree on a step.
    step = int(re.search(r"rank 0: ended by SIGTERM after step (\d+)", pods[0].log())[1])
    made = len(re.findall(r" batch \d+/", pods[0].log()))
    assert step == after + made and (folder / "checkpoints" / f"step-{step:09}.safetensors").exists(), (after, made, pods[0].log())
    return step


def test_a_training_that_is_suspended_goes_on_from_its_last_step(cluster, queued, tmp_path):  # noqa: F811
    job = of_train(cluster, queued)
    folder = cluster.claim("runs") / "run"
    first = suspend_in_training(start(cluster, job, "u9"), folder, 0)
    resumed = start(cluster, job, "u9")
    resumed[0].await_log(f"goes on from /work/run/checkpoints/step-{first:09}.safetensors", 120)
    second = suspend_in_training(resumed, folder, first)
    # The same steps in a run that nobody suspends have the same parameters and optimizer, bit by bit.
    own = [*TRAINING, "--output-dir", tmp_path / "own", "--max-steps", second]
    done = run([DDPRUN, "--standalone", "--nproc-per-node", "2", TRAIN, *own], env=clean_environment(OMP_NUM_THREADS="1"), timeout=300)
    assert done.returncode == 0, done.stderr
    file = f"checkpoints/step-{second:09}.safetensors"
    suspended, whole = load_file(folder / file), load_file(tmp_path / "own" / file)
    names = [name for name in whole if name.startswith(("model/", "optimizer/"))]
    assert suspended.keys() == whole.keys() and len(names) == 20, suspended.keys()
    assert all(torch.equal(suspended[name], whole[name]) for name in names)


def test_a_pod_that_is_evicted_alone_is_replaced_and_the_others_keep_what_they_have(cluster, queued):  # noqa: F811
    stays, goes = start(cluster, of_train(cluster, queued), "u10")
    wait_for(f"some steps: {stays.log()}", lambda: len(re.findall(r" batch \d+/", stays.log())) > 5, 120)
    goes.terminate()
    assert goes.wait(90) == 143, goes.log()
    replacement = pod_of_job(cluster, of_train(cluster, queued), 1, "u10")
    stays.await_log(" with 2 ranks; the state is rank 0's", 120)
    step = int(re.search(r"goes on after step (\d+) with 2 ranks", stays.log())[1])
    made = len(re.findall(r" batch \d+/", stays.log()[: stays.log().index("goes on after")]))
    assert step in (made, made + 1), (step, stays.log())
    wait_for("more steps", lambda: len(re.findall(r" batch \d+/", replacement.log())) > 5, 120)
    assert suspend([stays, replacement]) == [143, 143], (stays.log(), replacement.log())


def test_a_program_that_saves_and_ends_well_has_not_completed_its_index(cluster, queued):  # noqa: F811
    """An index whose pod ends with 0 is complete: no pod takes it up when the Job is resumed, and the others wait for it forever
    (kubernetes-sigs/kueue#10487)."""
    job = job_that("save", of=queued)
    for _ in range(2):
        pods = start(cluster, job, "u11")
        for rank, pod in enumerate(pods):
            pod.await_log(f"rank {rank} of 2 round 0 run job-u11")
            pod.await_log("has a handler")
        assert suspend(pods) == [143, 143], [pod.log() for pod in pods]
        saved = [cluster.claim("runs") / f"saved-{rank}" for rank in (0, 1)]
        assert all(file.exists() for file in saved), [pod.log() for pod in pods]
        for file in saved:
            file.unlink()
