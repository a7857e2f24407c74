# SPDX-License-Identifier: Apache-2.0
"""deploy/kubernetes' Job as processes in network namespaces: what a pod is given is what its manifest says (pods.py)."""

import copy
import http.server
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import threading
import time

import pytest
import yaml
from conftest import DDPRUN, REPO, TOKEN, clean_environment, start, wait_for
from pods import made_cluster, pod_of_job

JOB = yaml.safe_load((REPO / "deploy" / "kubernetes" / "base" / "job.yaml").read_text())
WORKER = pathlib.Path(__file__).with_name("pod_worker.py")
TOKEN_PATHS = {"KUBEFLOW_TRAINER_SERVER_CA_CERT": "ca.crt", "KUBEFLOW_TRAINER_SERVER_TOKEN": "token"}


@pytest.fixture
def cluster(tmp_path):
    with made_cluster(tmp_path) as one:
        one.secrets["ddprun-token"] = {"token": TOKEN}
        yield one


def job_that(*words, of=JOB):
    """The manifest's Job with another program, as a user's overlay has it, and one worker in each pod."""
    job = copy.deepcopy(of)
    container = job["spec"]["template"]["spec"]["containers"][0]
    container["args"] = ["/usr/bin/python3", "-c", WORKER.read_text(), *words]
    for entry in container["env"]:
        if entry["name"] == "PET_NPROC_PER_NODE":
            entry["value"] = "1"
    return job


def test_the_jobs_pods_are_a_run_of_an_ordinary_user(cluster):
    """Pod 0 comes last, and its name is in the DNS only after it has begun."""
    job = job_that("look")
    second = pod_of_job(cluster, job, 1, "u1")
    second.await_log("cannot resolve 'ddprun-0.ddprun'")
    first = pod_of_job(cluster, job, 0, "u1", names=[])
    first.await_log("cannot resolve 'ddprun-0.ddprun'")
    cluster.publish("ddprun-0.ddprun", first)
    assert (first.wait(), second.wait()) == (0, 0), (first.log(), second.log())
    for rank, pod in enumerate((first, second)):
        log = pod.log()
        assert f"rank {rank} of 2 round 0 run job-u1" in log
        assert "uid 1000 capabilities ['0000000000000000'] secret False" in log, log
        for folder in ("/work", "/tmp", "/dev/shm"):
            assert f" writes {folder}\n" in log, log
        for folder in ("/", "/usr", "/opt/ddprun/bin", "/etc"):
            assert f"cannot write {folder}\n" in log, log
        assert pod.termination_message() == ""


def test_a_pod_that_is_replaced_takes_its_place_and_the_others_stay(cluster):
    job = job_that("until", "/work/end")
    first, second = (pod_of_job(cluster, job, index, "u2") for index in (0, 1))
    for rank, pod in enumerate((first, second)):
        pod.await_log(f"rank {rank} of 2 round 0")
    second.kill()
    third = pod_of_job(cluster, job, 1, "u2")
    assert third.host.address != second.host.address
    third.await_log("rank 1 of 2 round 1 run job-u2")
    first.await_log("rank 0 of 2 round 1")
    assert first.process.poll() is None
    for pod in (first, third):
        (pod.folder / "work" / "end").touch()
    assert (first.wait(), third.wait()) == (0, 0), (first.log(), third.log())


def test_pod_0_takes_the_run_with_it_and_the_jobs_next_pods_make_a_new_one(cluster):
    """The new pod 0 is there, under the old name, before the old pod 1 has ended."""
    job = job_that("until", "/work/end")
    first, second = (pod_of_job(cluster, job, index, "u7") for index in (0, 1))
    for pod in (first, second):
        pod.await_log(" round 0 run job-u7")
    first.kill()
    third = pod_of_job(cluster, job, 0, "u7")
    assert second.wait() == 137 and "node ddprun-0 (node rank 0) was" in second.termination_message(), second.log()
    fourth = pod_of_job(cluster, job, 1, "u7")
    for rank, pod in enumerate((third, fourth)):
        pod.await_log(f"rank {rank} of 2 round 0 run job-u7")
        (pod.folder / "work" / "end").touch()
    assert (third.wait(), fourth.wait()) == (0, 0), (third.log(), fourth.log())


def test_sigterm_lets_all_ranks_save(cluster):
    """The kubelet's SIGTERM to one pod; 100 s are left, and the grace period of the pod is longer."""
    job = job_that("notice")
    first, second = (pod_of_job(cluster, job, index, "u3") for index in (0, 1))
    for pod in (first, second):
        pod.await_log("listens")
    second.terminate()
    assert (first.wait(), second.wait()) == (0, 0), (first.log(), second.log())
    left = [float((pod.folder / "work" / f"saved-{rank}").read_text()) for rank, pod in enumerate((first, second))]
    assert all(90 < seconds <= 100 for seconds in left), left
    assert max(left) < job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert "saved: kubernetes: SIGTERM of ddprun-1" in first.log(), first.log()


def test_the_verdict_is_the_termination_message(cluster):
    job = job_that("fail")
    pods = [pod_of_job(cluster, job, index, "u4") for index in (0, 1)]
    assert [pod.wait() for pod in pods] == [7, 7], [pod.log() for pod in pods]
    for pod in pods:
        message = pod.termination_message()
        assert message.startswith("ddprun: run failed: rank 1 (local rank 0 on host ddprun-1") and "restarts: 3 of 3" in message, message
        assert "exit code: 7" in message and len(message.encode()) <= 4096, message


def finished(process):
    out, err = process.communicate(timeout=100)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def run_in_pods_environment(tmp_path, *flags, **variables):
    env = clean_environment(KUBERNETES_SERVICE_HOST="10.0.0.1", **variables)
    return start([DDPRUN, "--standalone", *flags], env=env, cwd=tmp_path)


def test_a_termination_message_that_cannot_be_written(tmp_path):
    """By default nobody hears of it, as not every pod has the file; one that was named is missed."""
    failing = ("sh", "-c", "exit 9")
    done = finished(run_in_pods_environment(tmp_path, *failing))
    assert done.returncode == 9 and "termination-log" not in done.stderr, done.stderr
    done = finished(run_in_pods_environment(tmp_path, "--termination-log", str(tmp_path / "none"), *failing))
    assert done.returncode == 9 and "cannot write --termination-log" in done.stderr, done.stderr
    long = tmp_path / "long"
    long.write_text("old" * 5000)
    fail_long = ("sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do head -c 2000 /dev/zero | tr '\\0' x; echo; done; exit 9")
    done = finished(run_in_pods_environment(tmp_path, "--termination-log", str(long), *fail_long))
    assert done.returncode == 9 and 1000 < len(long.read_bytes()) <= 4096, (done.stderr[:300], len(long.read_bytes()))
    assert long.read_text().startswith("ddprun: run failed: rank 0")


# ---- Kubeflow Trainer


class TrainerServer:
    """Trainer's status server: HTTPS, a token that expires, and what it was told."""

    def __init__(self, folder, address="127.0.0.1", stays_silent=False):
        self.folder, self.requests, self.token = folder, [], "first-token"
        new = "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
        for command in (
            f"{new} -x509 -keyout ca.key -out ca.crt -days 2 -subj /CN=ca",
            f"{new} -keyout s.key -out s.csr -subj /CN=s -addext subjectAltName=IP:{address},DNS:trainer.kubeflow.svc",
            "openssl x509 -req -in s.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out s.crt -days 2 -copy_extensions copy",
        ):
            subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
        self.put_token(self.token)
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                known = self.headers["Authorization"] == f"Bearer {server.token}"
                if known:
                    server.requests.append((self.path, self.headers["Content-Type"], server.token, json.loads(body)))
                self.send_response(200 if known else 403)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer((address, 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "s.crt", folder / "s.key")
        if not stays_silent:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            threading.Thread(target=self._server.serve_forever, daemon=True).start()
        path = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs/first/status"
        self.variables = {"KUBEFLOW_TRAINER_SERVER_URL": f"https://{address}:{self._server.server_port}{path}"}
        self.variables.update({name: str(folder / file) for name, file in TOKEN_PATHS.items()})

    def put_token(self, token):
        """As the kubelet does: the file is replaced."""
        new = self.folder / "token.new"
        new.write_text(token + "\n")
        os.rename(new, self.folder / "token")

    def rotate(self, token):
        self.token = token
        self.put_token(token)

    def close(self):
        self._server.shutdown()
        self._server.server_close()


def progress_run(folder, errors=subprocess.PIPE, **variables):
    steps = folder / "steps"
    steps.write_text("")
    env = clean_environment(**variables)
    command = [DDPRUN, "--standalone", "--nproc-per-node", "2", WORKER, "progress", str(steps)]
    return steps, start(command, env=env, cwd=folder, stderr=errors)


def make_steps(file, count):
    with open(file, "a") as out:
        out.write("x\n" * count)


def test_progress_reaches_kubeflow_trainer(tmp_path):
    server = TrainerServer(tmp_path)
    try:
        steps, process = progress_run(tmp_path, **server.variables)
        wait_for("the first report", lambda: server.requests, 20)
        server.rotate("second-token")
        make_steps(steps, 4)
        wait_for("the second one", lambda: len(server.requests) >= 2, 20)
        make_steps(steps, 6)
        done = finished(process)
    finally:
        server.close()
    assert done.returncode == 0 and "Trainer" not in done.stderr, done.stderr
    paths, types, tokens, bodies = zip(*server.requests)
    assert set(types) == {"application/json"} and paths[0].endswith("/trainjobs/first/status")
    assert tokens[0] == "first-token" and tokens[-1] == "second-token"
    statuses = [body["trainerStatus"] for body in bodies]
    assert [status["progressPercentage"] for status in statuses] == [0, 40, 100], statuses
    assert statuses[-1]["estimatedRemainingSeconds"] == 0
    assert {metric["name"]: metric["value"] for metric in statuses[1]["metrics"]} == {
        "step": "4", "images_per_second_rank0": "2.5", "world_size": "2", "restarts": "0"}  # fmt: skip


@pytest.mark.parametrize("trouble", ["another authority", "refused token", "silent server", "no server", "no token"])
def test_a_run_does_not_wait_for_trainer(tmp_path, trouble):
    """One line says what is wrong, and the run ends as it would."""
    folder = tmp_path / "server"
    folder.mkdir()
    server = TrainerServer(folder, stays_silent=trouble == "silent server")
    variables = dict(server.variables)
    if trouble == "another authority":
        other = tmp_path / "other"
        other.mkdir()
        shutil.copy(TrainerServer(other, stays_silent=True).folder / "ca.crt", folder / "ca.crt")
    elif trouble == "refused token":
        server.put_token("wrong")
    elif trouble == "no server":
        variables["KUBEFLOW_TRAINER_SERVER_URL"] = "https://127.0.0.1:9/x"
    elif trouble == "no token":
        (folder / "token").unlink()
    with open(tmp_path / "stderr", "w") as errors:
        steps, process = progress_run(tmp_path, errors, **variables)
    read = (tmp_path / "stderr").read_text
    wait_for(f"the line about {trouble}", lambda: "cannot report the progress to Kubeflow Trainer at https://127" in read(), 20)
    make_steps(steps, 4)
    began = time.monotonic()
    make_steps(steps, 6)
    assert finished(process).returncode == 0 and time.monotonic() - began < 4, read()
    assert read().count("Kubeflow Trainer") == 1 and "first-token" not in read() and server.requests == [], read()
