# SPDX-License-Identifier: Apache-2.0
"""Where --preempt-notice looks (fake metadata servers of three clouds, on the loopback), and what becomes of a run whose machine goes."""

import calendar
import contextlib
import http.server
import json
import re
import signal
import sys
import threading
import time
import urllib.parse

import pytest
from conftest import DDPRUN, PYTHON, TRAIN, clean_environment, finish_all, run, start, wait_for

# Saves once for each notice, says so, and stays until it is told to go. With "quiet" it does not say so, with "early" it says
# so before it hears of the first.
WORKER = """
import os, socket, sys, time
import ddprun

folder, what = sys.argv[1:]
mine = f"{os.environ['DDPRUN_ROUND']}.{os.environ['RANK']}"

def on_notice(seconds):
    with open(f"{folder}/saved.{mine}", "a") as file:
        file.write(f"{seconds}\\n")
    if what == "say":
        ddprun.notice_saved()

if what == "early":
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.sendto(b"SAVED=1\\n", os.environ["DDPRUN_NOTIFY_SOCKET"])
assert ddprun.on_notice(on_notice)
open(f"{folder}/ready.{mine}", "w").close()
while not os.path.exists(f"{folder}/done"):
    time.sleep(0.02)
"""


@pytest.fixture
def worker(tmp_path):
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    return script


class Cloud:
    """A metadata server. `notice` is what it answers with; absent: there is none."""

    def __init__(self, kind):
        self.kind, self.notice, self.asked, self.tokens = kind, None, [], 0
        self.changed = threading.Condition()
        cloud = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self, status, body="", **headers):
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                with contextlib.suppress(BrokenPipeError):  # one that has ended meanwhile
                    self.end_headers()
                    self.wfile.write(body.encode())

            def do_PUT(self):
                cloud.asked.append(f"PUT {self.path}")
                getattr(cloud, cloud.kind)(self)

            def do_GET(self):
                cloud.asked.append(f"GET {self.path}")
                getattr(cloud, cloud.kind)(self)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def environment(self):
        host = f"127.0.0.1:{self.server.server_port}"
        return {
            "aws": {"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://{host}"},
            "gcp": {"GCE_METADATA_HOST": host},
            "azure": {"AZURE_POD_IDENTITY_AUTHORITY_HOST": f"http://{host}"},
        }[self.kind]

    def give(self, notice):
        with self.changed:
            self.notice = notice
            self.changed.notify_all()

    # IMDSv2. A token is good for one question here, so that the second look finds that it has run out.
    def aws(self, request):
        if request.command == "PUT" and request.path == "/latest/api/token":
            assert int(request.headers["X-aws-ec2-metadata-token-ttl-seconds"]) > 0
            self.tokens += 1
            self.spent = False
            return request.answer(200, f"token-{self.tokens}")
        if request.headers["X-aws-ec2-metadata-token"] != f"token-{self.tokens}" or self.spent:
            return request.answer(401)
        self.spent = True
        if request.path != "/latest/meta-data/spot/instance-action" or self.notice is None:
            return request.answer(404, "<html>404</html>")
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.notice))
        request.answer(200, json.dumps({"action": "terminate", "time": at}))

    def gcp(self, request):
        assert request.headers["Metadata-Flavor"] == "Google"
        path, _, query = request.path.partition("?")
        if path == "/computeMetadata/v1/instance/maintenance-event":
            return request.answer(200, "NONE", ETag="c0ffee")
        assert path == "/computeMetadata/v1/instance/preempted"
        wanted = dict(urllib.parse.parse_qsl(query))
        with self.changed:
            if wanted.get("wait_for_change") == "true" and wanted["last_etag"] == "1" and self.notice is None:
                self.changed.wait(float(wanted["timeout_sec"]))
            request.answer(200, "FALSE" if self.notice is None else "TRUE", ETag="1" if self.notice is None else "2")

    def azure(self, request):
        assert request.headers["Metadata"] == "true"
        if request.path.startswith("/metadata/instance/compute/name?"):
            return request.answer(200, "vm_1")
        assert request.path == "/metadata/scheduledevents?api-version=2020-07-01"
        events = []
        for number, name in enumerate(["vm_0", "vm_1"] if self.notice is not None else ["vm_0"]):
            at = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(self.notice or time.time()))
            event = {"EventId": str(number), "EventType": "Preempt", "ResourceType": "VirtualMachine", "Resources": [name]}
            events.append({**event, "EventStatus": "Scheduled", "NotBefore": at})
        request.answer(200, json.dumps({"DocumentIncarnation": 1, "Events": events}))


@pytest.fixture
def make_cloud():
    clouds = []

    def make(kind):
        clouds.append(Cloud(kind))
        return clouds[-1]

    yield make
    for cloud in clouds:
        cloud.server.shutdown()
        cloud.server.server_close()


def launch(flags, *program, **variables):
    return start([DDPRUN, *flags, *program], env=clean_environment(PYTHONPATH=PYTHON, **variables))


def node_flags(port, nodes, rank):
    common = ["--nnodes", nodes, "--master-addr", "127.0.0.1", "--master-port", port, "--node-rank", rank]
    return [*common, "--last-call", 30, "--term-timeout", 5]


def wait_until_ready(folder, ranks, round=1):
    for rank in range(ranks):
        wait_for(f"rank {rank} in round {round}", (folder / f"ready.{round}.{rank}").exists)


def drained(reason, seconds):
    return rf"\(node rank 1\) was drained by its notice \({reason}, ({seconds}) s\)"


@pytest.mark.parametrize(
    "kind, reason, given, late",
    [
        ("aws", "aws: spot instance-action terminate", 120, 15),  # asked every 5 s
        ("gcp", "gcp: preempted", 30, 0),
        ("azure", "azure: Preempt", 60, 15),
    ],
)
def test_a_cloud_takes_a_machine_and_the_others_go_on(tmp_path, port, worker, make_cloud, kind, reason, given, late):
    clouds = [make_cloud(kind) for _ in range(2)]
    nodes = [
        launch([*node_flags(port, "1:2", rank), "--preempt-notice", kind], worker, tmp_path, "say", **clouds[rank].environment())
        for rank in range(2)
    ]
    wait_until_ready(tmp_path, 2)
    for cloud in clouds:
        wait_for("a whole look", lambda cloud=cloud: len(cloud.asked) >= 2)
    clouds[1].give(calendar.timegm(time.gmtime()) + given)
    wait_until_ready(tmp_path, 1, round=2)
    assert nodes[1].wait(60) == 0
    assert nodes[0].poll() is None
    (tmp_path / "done").touch()
    (code, _, err), (_, _, gone) = finish_all(nodes)
    assert code == 0, err
    seconds = int(re.search(rf"will be taken away in (\d+) s \({reason}\); the workers are told", err)[1])
    assert given - late <= seconds <= given, err
    seconds = f"{seconds - 1}|{seconds}"  # rounded in another way
    assert re.search(drained(reason, seconds), err) and re.search(rf"this node has left the run: .*{drained(reason, seconds)}", gone), err
    for rank in range(2):
        heard = (tmp_path / f"saved.1.{rank}").read_text().splitlines()
        assert len(heard) == 1 and given - late - 10 < float(heard[0]) <= given, heard
    assert not list(tmp_path.glob("saved.2.*"))
    if kind == "aws":
        assert clouds[1].tokens >= 2, "the first has run out"


def test_workers_may_have_saved_before_their_agent_hears_of_the_notice(tmp_path, port, worker):
    """As where a worker of the other node has told them in their collective."""
    notice = tmp_path / "notice"
    flags = ["--preempt-notice", notice]
    nodes = [launch([*node_flags(port, "1:2", rank), *flags * rank], worker, tmp_path, ["early", "say"][rank]) for rank in range(2)]
    wait_until_ready(tmp_path, 2)
    notice.write_text("600")
    wait_until_ready(tmp_path, 1, round=2)
    (tmp_path / "done").touch()
    assert [code for code, _, _ in finish_all(nodes)] == [0, 0]


def test_train_loses_no_step_to_a_machine_that_goes(tmp_path, port):
    """Nothing but the notice lets it save. The rank that stays goes on from there."""
    settings = ["--model", "simple-cnn", "--dataset", "synthetic", "--samples", "256", "--batch-size", "4", "--log-every", "1"]
    settings += ["--epochs", "100000", "--no-eval", "--checkpoint-seconds", "1000", "--output-dir", tmp_path, "--resume", "auto"]
    notice = tmp_path / "notice"
    flags = ["--preempt-notice", notice]
    nodes = [launch([*node_flags(port, "1:2", rank), *flags * rank], TRAIN, *settings, OMP_NUM_THREADS="1") for rank in range(2)]
    status = [DDPRUN, "status", "--rdzv-endpoint", f"127.0.0.1:{port}", "--json"]

    def step(round):
        shown = json.loads(run(status).stdout or '{"runs": []}')["runs"]
        progress = shown[0]["progress"] if shown and shown[0]["round"] == round else None
        return (progress and progress["step"]) or 0

    wait_for("some steps", lambda: step(1) >= 5)
    notice.write_text("90")
    assert nodes[1].wait(60) == 0
    saved = max(int(path.stem.split("-")[1]) for path in (tmp_path / "checkpoints").glob("step-*.safetensors"))
    wait_for("steps of the next round", lambda: step(2) > saved)
    nodes[0].terminate()
    (code, out, err), _ = finish_all(nodes)
    assert code == 128 + signal.SIGTERM and re.search(drained(f"the file {notice}", "89|90"), err), err
    after = re.search(r"goes on after step (\d+) with 1 rank", out)
    assert after and int(after[1]) >= saved > 0, (saved, out)


def test_azure_may_cancel_and_the_machine_stays(tmp_path, port, worker, make_cloud):
    cloud = make_cloud("azure")
    flags = ["--preempt-notice", "azure"]
    a = launch(node_flags(port, "1:2", 0), worker, tmp_path, "quiet")
    b = launch([*node_flags(port, "1:2", 1), *flags], worker, tmp_path, "quiet", **cloud.environment())
    wait_until_ready(tmp_path, 2)
    cloud.give(time.time() + 600)
    wait_for("the notice", (tmp_path / "saved.1.0").exists)
    cloud.give(None)
    status = [DDPRUN, "status", "--rdzv-endpoint", f"127.0.0.1:{port}", "--json"]
    wait_for("its end", lambda: json.loads(run(status).stdout)["runs"][0]["preemption"] is None)
    (tmp_path / "done").touch()
    results = finish_all([a, b])
    assert [code for code, _, _ in results] == [0, 0], results
    assert "this machine stays after all: the notice (azure: Preempt) is gone" in results[1][2]
    assert "drained" not in results[0][2]


def test_kubernetes_deletes_a_pod_and_its_end_is_no_success(tmp_path, port, worker):
    nodes = [launch([*node_flags(port, "1:2", rank), "--preempt-notice", "kubernetes"], worker, tmp_path, "say") for rank in range(2)]
    wait_until_ready(tmp_path, 2)
    nodes[1].send_signal(signal.SIGTERM)
    wait_until_ready(tmp_path, 1, round=2)
    assert nodes[1].wait(60) == 128 + signal.SIGTERM, "a Job would take 0 for the end of its work"
    (tmp_path / "done").touch()
    (code, _, err), _ = finish_all(nodes)
    assert code == 0 and re.search(drained("kubernetes: SIGTERM", "30"), err), err


def test_slurm_ends_a_job_at_its_time_limit(tmp_path, worker):
    flags = ["--standalone", "--preempt-notice", "slurm", "--notice-grace", 90]
    node = launch(flags, worker, tmp_path, "say", SLURM_JOB_END_TIME=str(int(time.time()) + 60))
    wait_for("the notice", (tmp_path / "saved.1.0").exists)
    (tmp_path / "done").touch()
    [(code, _, err)] = finish_all([node])
    assert code == 0 and re.search(r"will be taken away in (58|59|60) s \(slurm: the job's time limit\)", err), err


def test_a_server_that_hangs_or_is_no_server_is_named_once_and_nothing_waits_for_it(tmp_path):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as hangs, socket.create_server(("127.0.0.1", 0)) as talks:
        threading.Thread(target=lambda: talks.accept()[0].sendall(b"220 smtp\r\n"), daemon=True).start()
        for server, why in ((hangs, "no answer in time"), (talks, "it does not speak HTTP/1.1")):
            host = f"127.0.0.1:{server.getsockname()[1]}"
            end = tmp_path / host
            program = ["sh", "-c", "echo up; while [ ! -e $0 ]; do sleep 0.02; done", end]
            flags = ["--standalone", "--preempt-notice", "gcp"]
            node = launch(flags, *program, GCE_METADATA_HOST=host)
            assert "up" in node.stdout.readline()
            sentence = node.stderr.readline()
            assert f"cannot look for the metadata server at {host}: {why}; the run goes on" in sentence
            end.touch()
            [(code, _, err)] = finish_all([node])
            assert (code, err) == (0, ""), err
    began = time.monotonic()
    ended = run([DDPRUN, "--standalone", "--preempt-notice", "azure", "true"], env=clean_environment(AZURE_POD_IDENTITY_AUTHORITY_HOST="x.invalid"))
    assert ended.returncode == 0 and time.monotonic() - began < 10, ended.stderr


# In a network of its own, where the address of metadata servers is this machine's: counts who connects.
LINK_LOCAL = """
import socket, subprocess, sys
server = socket.create_server(("169.254.169.254", 80), backlog=64)
for flags in sys.argv[2:]:
    ended = subprocess.run([sys.argv[1], "--standalone", *flags.split(), "sh", "-c", "sleep 0.3"])
    assert ended.returncode == 0, flags
    count = 0
    server.settimeout(0.2)
    try:
        while True:
            server.accept()[0].close()
            count += 1
    except TimeoutError:
        pass
    print(f"{flags}: {count}", flush=True)
"""


def test_only_a_cloud_by_name_is_asked_at_the_link_local_address(tmp_path):
    set_up = 'ip link set lo up && ip address add 169.254.169.254/32 dev lo && exec "$@"'
    inside = ["unshare", "--net", "sh", "-c", set_up, "sh"]
    if run([*inside, "true"]).returncode != 0:
        pytest.skip("needs root")
    quiet = ["--max-restarts 0", f"--preempt-notice {tmp_path}/aws", "--preempt-notice slurm", "--preempt-notice kubernetes"]
    asking = ["--preempt-notice aws", "--preempt-notice gcp", "--preempt-notice azure"]
    ended = run([*inside, sys.executable, "-c", LINK_LOCAL, DDPRUN, *quiet, *asking])
    assert ended.returncode == 0, ended.stderr
    counts = dict(line.rsplit(": ", 1) for line in ended.stdout.splitlines())
    assert all(counts[flags] == "0" for flags in quiet), counts
    assert all(int(counts[flags]) > 0 for flags in asking), counts
