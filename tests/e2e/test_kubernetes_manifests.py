# SPDX-License-Identifier: Apache-2.0
"""What `kubectl kustomize` and `helm template` make of deploy/kubernetes: every object against its schema, chart and overlays
against each other, and the pods of each overlay as processes. deploy/setup.sh --kubernetes installs the tools."""

import base64
import copy
import ctypes
import json
import os
import pathlib
import shutil
import subprocess
import threading

import pytest
import yaml
from book_blocks import blocks_of
from conftest import REPO, TOKEN, clean_environment, kept_cache, run, wait_for
from pods import SWITCH, made_cluster, pod_of_job
from test_kubernetes import TrainerServer, job_that, make_steps

FOLDER = REPO / "deploy" / "kubernetes"
OVERLAYS = {"job": ".", "jobset": "overlays/jobset", "in-place": "overlays/jobset-in-place", "trainer": "overlays/trainer",
            "rendezvous": "overlays/rendezvous", "rendezvous-etcd": "overlays/rendezvous-etcd", "kueue": "overlays/kueue"}  # fmt: skip
JOURNAL = r"rendezvous.journal=etcd://etcd-0.etcd:2379\,etcd-1.etcd:2379\,etcd-2.etcd:2379/ddprun"
CHART = {"job": [], "jobset": ["kind=jobset"], "trainer": ["kind=trainer"], "rendezvous": ["rendezvous.enabled=true"],
         "rendezvous-etcd": ["rendezvous.enabled=true", JOURNAL],
         "kueue": ["queue=user-queue", "work.emptyDir=null", "work.persistentVolumeClaim.claimName=runs"]}  # fmt: skip
WITHOUT_SPEC = ("ServiceAccount", "Role", "RoleBinding", "ConfigMap")
CLONE_NEWNET = 0x40000000


@pytest.fixture(scope="session")
def tools():
    """The folder of kubectl, helm and the Python with the schemas."""
    command = f". {REPO}/deploy/common.sh; echo $kubernetes_environment/bin"
    folder = pathlib.Path(run(["bash", "-c", command], env=clean_environment(**kept_cache())).stdout.strip())
    if not (folder.parent / ".installed").exists():
        done = run([REPO / "deploy" / "setup.sh", "--kubernetes"], env=clean_environment(**kept_cache()), timeout=900)
        assert done.returncode == 0, done.stderr
    return folder


def objects(done):
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def kustomized(tools, folder):
    return objects(run([tools / "kubectl", "kustomize", folder], env=clean_environment(HOME="/nonexistent")))


def charted(tools, *values):
    flags = [word for value in values for word in ("--set", value)]
    return objects(run([tools / "helm", "template", "ddprun", FOLDER / "chart", *flags], env=clean_environment(HOME="/tmp")))


def by_name(things):
    return {(one["kind"], one["metadata"]["name"]): one for one in things}


def complaints(tools, things):
    done = subprocess.run([tools / "python", pathlib.Path(__file__).with_name("kubernetes_schemas.py")], input=json.dumps(things),
                          capture_output=True, text=True, timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", OVERLAYS)
def test_every_object_has_only_fields_that_there_are(tools, kind):
    things = kustomized(tools, FOLDER / OVERLAYS[kind])
    things.append(yaml.safe_load((FOLDER / "overlays" / "trainer" / "trainjob.yaml").read_text()))
    assert complaints(tools, things) == ""
    # The same with a mistake in it is found, else the line above says nothing.
    for thing in things:
        broken = copy.deepcopy(thing)
        broken.setdefault("spec", broken if thing["kind"] in WITHOUT_SPEC else {})["replicaz"] = 3
        if thing["kind"] in WITHOUT_SPEC:
            broken.pop("spec")
        assert "replicaz" in complaints(tools, [broken]), thing["kind"]


@pytest.mark.parametrize("kind", CHART)
def test_chart_and_overlay_are_the_same_objects(tools, kind):
    assert by_name(charted(tools, *CHART[kind])) == by_name(kustomized(tools, FOLDER / OVERLAYS[kind]))


def test_chart_and_component_have_the_same_etcd_over_tls(tools, tmp_path):
    shutil.copytree(FOLDER, tmp_path / "kubernetes")
    (tmp_path / "mine").mkdir()
    own = {"resources": ["../kubernetes/overlays/rendezvous-etcd"], "components": ["../kubernetes/components/etcd-tls"]}
    (tmp_path / "mine" / "kustomization.yaml").write_text(json.dumps(own))
    made = kustomized(tools, tmp_path / "mine")
    assert complaints(tools, made) == ""
    assert by_name(charted(tools, *CHART["rendezvous-etcd"], "rendezvous.journalTlsSecret=ddprun-etcd")) == by_name(made)


def test_the_chart_refuses_a_journal_that_is_no_etcd(tools):
    command = [tools / "helm", "template", "ddprun", FOLDER / "chart", "--set", "rendezvous.enabled=true,rendezvous.journal=/journal"]
    done = run(command, env=clean_environment(HOME="/tmp"))
    assert done.returncode != 0 and "rendezvous.journal is not etcd://HOST:PORT" in done.stderr, done


def test_a_jobset_in_a_queue_ends_at_sigterm_too(tools):
    things = charted(tools, "kind=jobset", "queue=user-queue")
    jobset = next(one for one in things if one["kind"] == "JobSet")
    assert complaints(tools, things) == "" and jobset["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "user-queue"}
    names = {entry["name"] for entry in pod_template(things)["spec"]["containers"][0]["env"]}
    assert "PET_TERM_TIMEOUT" in names and not any(name.startswith("PET_NOTICE") for name in names), names


@pytest.mark.parametrize("kind", ["jobset", "trainer", "job"])
def test_values_reach_the_pods(tools, kind):
    things = charted(tools, f"kind={kind}", "nodes=5", "image=r/i:2", "args={a,b c}", "rendezvous.enabled=true", "resources.limits=null",
                     "env[0].name=X", "env[0].value=y", "work.emptyDir=null", "work.persistentVolumeClaim.claimName=runs")  # fmt: skip
    assert complaints(tools, things) == ""
    pod = pod_template(things)
    container = pod["spec"]["containers"][0]
    variables = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert container["image"] == "r/i:2" and container["args"] == ["a", "b c"] and "limits" not in container["resources"]
    assert variables["PET_NNODES"] == "5" and variables["X"] == "y" and variables["PET_RDZV_ENDPOINT"] == "ddprun-rendezvous:29500"
    assert pod["spec"]["volumes"][0] == {"name": "work", "persistentVolumeClaim": {"claimName": "runs"}}


def pod_template(things):
    return job_of(things)["spec"]["template"]


def job_of(things):
    """The Job of a Job, a JobSet or a runtime."""
    for one in things:
        if one["kind"] == "Job":
            return one
        if one["kind"] in ("JobSet", "ClusterTrainingRuntime"):
            spec = one["spec"] if one["kind"] == "JobSet" else one["spec"]["template"]["spec"]
            return {"metadata": {"name": one["metadata"]["name"]}, "spec": spec["replicatedJobs"][0]["template"]["spec"]}
    raise AssertionError([one["kind"] for one in things])


# ---- The pods as processes


@pytest.fixture
def cluster(tmp_path):
    with made_cluster(tmp_path) as one:
        one.secrets["ddprun-token"] = {"token": TOKEN}
        yield one


def pod_of_jobset(cluster, job, name, index, attempt=0, job_index=0, jobs=1, **more):
    """As JobSet 0.12 names and labels it."""
    own = copy.deepcopy(job)
    own["metadata"]["name"] = f"{name}-node-{job_index}"
    prefix = "jobset.sigs.k8s.io"
    labels = {f"{prefix}/jobset-name": name, f"{prefix}/jobset-uid": "9f", f"{prefix}/replicatedjob-name": "node",
              f"{prefix}/replicatedjob-replicas": str(jobs), f"{prefix}/job-index": str(job_index),
              f"{prefix}/restart-attempt": str(attempt)}  # fmt: skip
    return pod_of_job(cluster, own, index, f"job-{job_index}-{attempt}", labels=labels, subdomain=name, **more)


def test_the_next_attempt_of_a_jobset_never_meets_the_last_one(tools, cluster):
    """A pod of attempt 0 that nobody stopped asks for the service under the name that pod 0 of attempt 1 has now."""
    job = job_that("until", "/work/end", of=job_of(kustomized(tools, FOLDER / OVERLAYS["jobset"])))
    old = pod_of_jobset(cluster, job, "ddprun", 1, attempt=0)
    first = pod_of_jobset(cluster, job, "ddprun", 0, attempt=1)
    old.await_log("node rank 0 has not joined")  # the service has it, in a run of its own
    second = pod_of_jobset(cluster, job, "ddprun", 1, attempt=1)
    for rank, pod in enumerate((first, second)):
        pod.await_log(f"rank {rank} of 2 round 0 run jobset-9f-1")
        (pod.folder / "work" / "end").touch()
    assert (first.wait(), second.wait()) == (0, 0), (first.log(), second.log())
    assert "rank 1 of 2" not in old.log(), old.log()


def test_the_jobs_of_one_jobset_are_one_run(tools, cluster):
    job = job_that("look", of=job_of(kustomized(tools, FOLDER / OVERLAYS["jobset"])))
    pods = [pod_of_jobset(cluster, job, "ddprun", 0, job_index=number, jobs=2) for number in (0, 1)]
    assert [pod.wait() for pod in pods] == [0, 0], [pod.log() for pod in pods]
    for rank, pod in enumerate(pods):
        assert f"rank {rank} of 2 round 0 run jobset-9f-0" in pod.log(), pod.log()


def in_network_of(host, make):
    """What `make` returns, made in that network: sockets stay there."""
    made = []

    def enter():
        with open(f"/proc/{host.pid}/ns/net") as namespace:
            assert ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        made.append(make())

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join(60)
    return made[0]


def trained(job, nodes, server, folder):
    """The runtime's pods as Trainer 2.3 completes them: FACTS.md has what it sets."""
    job = copy.deepcopy(job)
    pod = job["spec"]["template"]["spec"]
    container = pod["containers"][0]
    at = "/var/run/secrets/kubeflow/trainer"
    values = {"KUBEFLOW_TRAINER_SERVER_URL": server.variables["KUBEFLOW_TRAINER_SERVER_URL"],
              "KUBEFLOW_TRAINER_SERVER_CA_CERT": f"{at}/ca.crt", "KUBEFLOW_TRAINER_SERVER_TOKEN": f"{at}/token"}  # fmt: skip
    if nodes:  # a TrainJob that has a trainer
        values |= {"PET_NNODES": str(nodes), "PET_NPROC_PER_NODE": "1"}
        values |= {"PET_MASTER_ADDR": "first-node-0-0.first", "PET_MASTER_PORT": "29500"}
    entries = [{"name": name, "value": value} for name, value in values.items()]
    if nodes:
        path = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
        entries.append({"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": path}}})
    replaced = {entry["name"] for entry in entries}
    container["env"] = [entry for entry in container["env"] if entry["name"] not in replaced] + entries
    container["volumeMounts"].append({"name": "kubeflow-trainer-token", "mountPath": at, "readOnly": True})
    pod["volumes"].append({"name": "kubeflow-trainer-token", "projected": {}})
    return job


@pytest.mark.parametrize("nodes", [None, 3], ids=["the runtime's nodes", "the job's nodes"])
def test_a_trainjob_of_two_lines_runs_and_shows_its_progress(tools, cluster, tmp_path, nodes):
    secrets = tmp_path / "secrets"
    secrets.mkdir(mode=0o755)
    server = in_network_of(cluster.switch, lambda: TrainerServer(secrets, SWITCH))
    cluster.files["kubeflow-trainer-token"] = secrets
    job = job_that("progress", "/work/steps", of=job_of(kustomized(tools, FOLDER / OVERLAYS["trainer"])))
    job = trained(job, nodes, server, tmp_path)
    try:
        pods = [pod_of_jobset(cluster, job, "first", index) for index in range(nodes or 2)]
        for pod in pods:
            make_steps(pod.folder / "work" / "steps", 3)
        wait_for("the first report", lambda: server.requests, 40)
        server.rotate("second-token")
        for pod in pods:
            make_steps(pod.folder / "work" / "steps", 7)
        assert [pod.wait() for pod in pods] == [0] * len(pods), [pod.log() for pod in pods]
    finally:
        server.close()
    assert f"rank 0 of {nodes or 2} round 0 run jobset-9f-0" in pods[0].log()
    bodies = [body for _, _, _, body in server.requests]
    assert bodies[-1]["trainerStatus"]["progressPercentage"] == 100 and server.requests[-1][2] == "second-token", server.requests
    assert complaints(tools, [{"kind": "UpdateTrainJobStatusRequest", **body} for body in bodies]) == ""


def test_the_rendezvous_service_and_pod_0_may_be_killed(tools, cluster):
    things = kustomized(tools, FOLDER / OVERLAYS["rendezvous"])
    deployment = next(one for one in things if one["kind"] == "Deployment")
    service = cluster.start(deployment["spec"]["template"], "ddprun-rendezvous-1", names=["ddprun-rendezvous"])
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        wait_for(probe, lambda probe=probe: service.probe(probe), 30)
    job = job_that("until", "/work/end", of=job_of(things))
    first, second = (pod_of_job(cluster, job, index, "u5") for index in (0, 1))
    for rank, pod in enumerate((first, second)):
        pod.await_log(f"rank {rank} of 2 round 0 run job-u5")
    service.kill()
    assert not service.probe("livenessProbe")
    # Of the Service's address the pods see nothing: it stays.
    again = cluster.start(deployment["spec"]["template"], "ddprun-rendezvous-2", instead_of=service)
    wait_for("the service again", lambda: again.probe("readinessProbe"), 30)
    first.kill()
    third = pod_of_job(cluster, job, 0, "u5")
    third.await_log("rank 0 of 2 round 1 run job-u5")
    second.await_log("rank 1 of 2 round 1")
    for pod in (second, third):
        (pod.folder / "work" / "end").touch()
    assert (second.wait(), third.wait()) == (0, 0), (second.log(), third.log())


# ---- The book's page

KUBECTL = """#!/bin/sh -e
case "$1" in
  create) {tools}/kubectl "$@" --dry-run=client -o yaml >> applied; echo --- >> applied ;;
  apply) if [ "$2" = -k ]; then {tools}/kubectl kustomize "$3"; else cat "$3"; fi >> applied; echo --- >> applied ;;
  *) for word in "$@"; do printf '%s\\0' "$word"; done >> asked; echo >> asked ;;
esac
"""
HELM = '#!/bin/sh -e\n[ "$1" = install ]\nshift\n{tools}/helm template "$@" > charted\n'


@pytest.fixture
def page(tools, tmp_path):
    """The folder in which all commands of the page ran, with what would have been applied, and what was asked."""
    shutil.copytree(FOLDER, tmp_path / "deploy" / "kubernetes")
    for name in ("ca.crt", "tls.crt", "tls.key"):  # the reader's
        (tmp_path / name).touch()
    commands = "".join(match["text"] for match, _ in blocks_of("tutorials/kubernetes.md") if match["language"] == "sh")
    for name, text in (("kubectl", KUBECTL), ("helm", HELM)):
        (tmp_path / name).write_text(text.format(tools=tools))
        (tmp_path / name).chmod(0o755)
    env = clean_environment(HOME=str(tmp_path), PATH=f"{tmp_path}:{os.environ['PATH']}")
    done = run(["bash", "-euo", "pipefail", "-c", commands], env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path


def test_the_books_commands_make_valid_objects(tools, page):
    applied = [one for one in yaml.safe_load_all((page / "applied").read_text()) if one]
    charts = [one for one in yaml.safe_load_all((page / "charted").read_text()) if one]
    assert complaints(tools, [*applied, *charts]) == ""
    assert {one["kind"] for one in applied} == {"Secret", "Service", "ServiceAccount", "Job", "JobSet", "Deployment",
                                                "PersistentVolumeClaim", "ClusterTrainingRuntime", "TrainJob", "StatefulSet",
                                                "ConfigMap", "PodDisruptionBudget"}  # fmt: skip
    queues = [one["metadata"].get("labels", {}).get("kueue.x-k8s.io/queue-name") for one in applied if one["kind"] == "Job"]
    places = [one["data"]["journal"] for one in applied if one["kind"] == "ConfigMap"]
    assert queues[-1] == "team-a" and places == ["etcd://etcd-0.etcd:2379,etcd-1.etcd:2379,etcd-2.etcd:2379/my-team"]
    assert {one["kind"] for one in charts} == {"ServiceAccount", "JobSet", "Deployment", "Service", "PersistentVolumeClaim"}
    secret = next(one for one in applied if one["kind"] == "Secret")
    assert secret["metadata"]["name"] == "ddprun-token" and len(base64.b64decode(secret["data"]["token"])) == 64
    job = next(one for one in applied if one["kind"] == "Job")
    pod = job["spec"]["template"]["spec"]
    container = pod["containers"][0]
    variables = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 4 and variables["PET_NNODES"] == "4"
    assert variables["PET_MAX_RESTARTS"] == "3" and container["args"][:3] == ["train", "--model", "resnet18"]
    assert container["image"] == "registry.example.com/ddprun:1" and container["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    assert {"name": "work", "persistentVolumeClaim": {"claimName": "runs"}} in pod["volumes"] and len(pod["volumes"]) == 3


def test_the_books_look_into_a_pod(page, cluster):
    asked = [line.split("\0") for line in (page / "asked").read_text().splitlines()]
    command = next(words for words in asked if words[0] == "exec")
    inside = command[command.index("--") + 1 : -1]
    pods = [pod_of_job(cluster, job_that("until", "/work/end"), index, "u6") for index in (0, 1)]
    for pod in pods:
        pod.await_log("round 0")
        done = run([*pod.prefix, *inside])
        assert done.returncode == 0 and "run job-u6: running" in done.stdout, done
