# SPDX-License-Identifier: Apache-2.0
"""deploy/kubernetes' rendezvous services with a journal in etcd, as pods: a real etcd, on the machine that joins their network."""

import json
import pathlib
import shutil
import tempfile

import pytest
import yaml
from conftest import run, wait_for
from etcd_cluster import VERSIONS, Etcd, make_certificates
from pods import SWITCH, pod_of_job
from test_kubernetes import job_that
from test_kubernetes_manifests import FOLDER, cluster, job_of, kustomized, tools  # noqa: F401  (fixtures)

pytestmark = pytest.mark.skipif(VERSIONS["3.4"] is None, reason="needs etcd")
SERVICES = [f"ddprun-rendezvous-{index}" for index in range(3)]


@pytest.fixture(params=["plain", "tls"])
def etcd(request, cluster, tmp_path):  # noqa: F811
    """What the user has: etcd, its place in the ConfigMap and its certificates in a Secret."""
    tls = tmp_path / "tls" if request.param == "tls" else None
    if tls:
        tls.mkdir()
        make_certificates(tls, SWITCH)
        names = {"ca.crt": "ca.pem", "tls.crt": "member.pem", "tls.key": "member.key"}
        cluster.secrets["ddprun-etcd"] = {name: (tls / file).read_text() for name, file in names.items()}
    # In memory: a leader's lease of 2 s is not for a disk that others keep busy.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, Etcd(
        pathlib.Path(folder), VERSIONS["3.4"], tls=tls, host=cluster.switch
    ) as one:
        cluster.config["ddprun-rendezvous"] = {"journal": one.place("ddprun")}
        yield one


def manifests(tools, etcd, tmp_path):  # noqa: F811
    """As the user's own kustomization has them: the component only where etcd has TLS."""
    shutil.copytree(FOLDER, tmp_path / "kubernetes")
    (tmp_path / "mine").mkdir()
    own = {"resources": ["../kubernetes/overlays/rendezvous-etcd"]}
    if etcd.tls:
        own["components"] = ["../kubernetes/components/etcd-tls"]
    (tmp_path / "mine" / "kustomization.yaml").write_text(yaml.safe_dump(own))
    return kustomized(tools, tmp_path / "mine")


def last_line(pod):
    return (pod.log().splitlines() or [""])[-1]


def await_leader(services):
    """The one that leads; all others stand by."""
    wanted = ["leads"] + ["stands by"] * (len(services) - 1)
    wait_for("a leader", lambda: sorted(last_line(pod).split(":")[0] for pod in services) == wanted)
    return next(pod for pod in services if last_line(pod) == "leads")


def nodes_that_run(pod):
    """Of the Job's run, as the leader knows it, asked in a pod of the run at the addresses that the Job has."""
    done = run([*pod.prefix, "ddpctl", "status", "--rdzv-endpoint", pod.env["PET_RDZV_ENDPOINT"], "--json", "--timeout", "20"])
    nodes = json.loads(done.stdout)["runs"][0]["nodes"] if done.returncode == 0 else []
    return sum(node["state"] == "running" for node in nodes)


def test_the_leaders_pod_may_be_killed_and_then_pod_0(tools, cluster, etcd, tmp_path):  # noqa: F811
    things = manifests(tools, etcd, tmp_path)
    template = next(one for one in things if one["kind"] == "StatefulSet")["spec"]["template"]
    services = [cluster.start(template, name, names=[f"{name}.ddprun-rendezvous"]) for name in SERVICES]
    leader = await_leader(services)
    for pod in services:
        assert all(pod.probe(kind) for kind in ("readinessProbe", "livenessProbe")), pod.log()
    job = job_that("until", "/work/end", of=job_of(things))
    first, second = (pod_of_job(cluster, job, index, "u8") for index in (0, 1))
    for rank, pod in enumerate((first, second)):
        pod.await_log(f"rank {rank} of 2 round 0 run job-u8")

    leader.kill()
    assert not leader.probe("readinessProbe")
    await_leader([pod for pod in services if pod is not leader])
    wait_for("both nodes", lambda: nodes_that_run(first) == 2, 100)
    # The StatefulSet's controller: the name of before, at another address.
    services[services.index(leader)] = cluster.start(template, leader.name, names=[f"{leader.name}.ddprun-rendezvous"])
    await_leader(services)
    # None of them said a word of the probes.
    lines = [line for pod in services for line in pod.log().splitlines()]
    assert all(line.startswith(("listening on", "leads", "stands by", "no longer leads")) for line in lines), lines
    # A worker says this once in its life.
    assert [pod.log().count(" of 2 round ") for pod in (first, second)] == [1, 1], (first.log(), second.log())

    first.kill()
    third = pod_of_job(cluster, job, 0, "u8")
    third.await_log("rank 0 of 2 round 1 run job-u8")
    second.await_log("rank 1 of 2 round 1")
    for pod in (second, third):
        (pod.folder / "work" / "end").touch()
    assert (second.wait(), third.wait()) == (0, 0), (second.log(), third.log())
