# SPDX-License-Identifier: Apache-2.0
"""`ddpctl web`: what a browser gets, asked for as a browser does it."""

import http.client
import json
import pathlib
import re
import signal
import socket
import time
import urllib.parse

import pytest
from conftest import BIN, DDPRUN, free_port, run, start, wait_for
from test_hangs import TELL, status

DDPCTL = str(BIN / "ddpctl")
WORKER = TELL + """
import sys, time
rank = int(os.environ["RANK"])
print(f"</script><b>hello from rank {rank}", flush=True)
for step in range(1, 10**9):
    progress(STEP=step, EPOCH=2, RATE=50, UNIT="images", LOSS=1 / step, ACCURACY=0.9, SECTION="forward")
    time.sleep(0.05)
"""


@pytest.fixture
def a_run(tmp_path):
    """A run of two ranks, as the port of its service."""
    port = free_port()
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    node = start([DDPRUN, "--nnodes", "1", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "job", "--nproc-per-node", 2, script])
    wait_for("both ranks", lambda: sum(len(node["workers"]) for run in status(port) for node in run["nodes"]) == 2)
    yield port, node
    node.kill()


class Page:
    """A `ddpctl web` that serves a page, and a browser with its cookie."""

    def __init__(self, port, *flags):
        self.process = start([DDPCTL, "web", *flags, "--rdzv-endpoint", f"127.0.0.1:{port}"])
        self.at(self.process.stdout.readline().strip())

    def at(self, url):
        self.url = urllib.parse.urlsplit(url)
        self.token = urllib.parse.parse_qs(self.url.query)["token"][0]
        self.cookie = None

    def __enter__(self):
        return self

    def __exit__(self, *why):
        if self.process.poll() is None:
            self.process.kill()

    def ask(self, path, method="GET", **headers):
        connection = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=20)
        headers = {"Cookie": self.cookie, **headers} if self.cookie else headers
        connection.request(method, path, headers=headers)
        return connection.getresponse()

    def open(self):
        answer = self.ask(f"/?{self.url.query}")
        assert (answer.status, answer.headers["Location"]) == (303, "/")
        self.cookie = answer.headers["Set-Cookie"].split(";")[0]
        return answer

    def origin(self):
        return f"http://{self.url.netloc}"

    def end(self):
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(30)


def messages(answer, timeout=60):
    """Of a stream of server-sent events, as (event, object). It must end, or nobody may ask it for more, in that time."""
    deadline = time.monotonic() + timeout
    name, last = "", None
    for line in answer:
        assert time.monotonic() < deadline, f"the stream goes on after {timeout} s; the last message is {last}"
        field, _, value = line.decode().rstrip("\n").partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            last = json.loads(value)
            yield name, last


def test_only_who_has_the_token_is_let_in(a_run):
    with Page(a_run[0]) as page:
        for path in ("/", "/events", "/?token=", f"/?token={'0' * 32}", "/%2e%2e/etc/passwd"):
            answer = page.ask(path)
            assert answer.status == 403, path
            assert page.token not in answer.read().decode()
        cookie = page.open().headers["Set-Cookie"]
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
        assert page.ask("/").status == 200
        assert page.ask("/", Host="evil.example").status == 403
        assert page.ask("/other").status == 404
        assert page.end() == 0


def test_pages_of_several_runs_are_open_in_one_browser(a_run):
    """Which sends the cookies of all ports to each of them."""
    with Page(a_run[0]) as first, Page(a_run[0]) as second:
        for page in (first, second):
            page.open()
        both = f"{first.cookie}; {second.cookie}"
        assert len({one.partition("=")[0] for one in both.split("; ")}) == 2
        for page in (first, second):
            page.cookie = both
            assert page.ask("/").status == 200


def test_the_page_is_one_file_without_secrets(a_run):
    with Page(a_run[0]) as page:
        page.open()
        answer = page.ask("/")
        text = answer.read().decode()
        assert len(text) < 150_000
        assert page.token not in text
        nonces = set(re.findall(r"nonce-(\w+)|nonce=\"(\w+)\"", text))
        assert len({one for pair in nonces for one in pair if one}) == 1
        assert page.ask("/").read().decode() != text  # another nonce
        assert not re.search(r"https?://", re.sub(r"<!--.*?-->", "", text))
        assert answer.headers["Cache-Control"] == "no-store"


def test_a_stream_begins_with_the_whole_and_goes_on(a_run):
    with Page(a_run[0]) as page:
        page.open()
        stream = page.ask("/events")
        assert stream.headers["Content-Type"] == "text/event-stream"
        seen = messages(stream)
        name, whole = next(seen)
        assert name == "whole"
        assert whole["control"] is False
        text = json.dumps(whole)
        while not ("hello from rank 1" in text and "round 1 begins" in text and '"samples"' in text and '"running"' in text):
            name, change = next(seen)
            assert name == "change"
            text += json.dumps(change)
        assert page.token not in text
        later = next(messages(page.ask("/events")))[1]
        assert len(later["nodes"]) == 1
        assert later["run"]["name"] == "job"
        assert later["samples"][-1][6] is not None  # loss
        assert later["samples"][-1][8] == 0.9  # accuracy
        assert any("round 1 begins" in event[2] for event in later["events"])
        assert page.end() == 0
        assert list(seen) is not None  # the stream ends with it


def test_orders_are_taken_only_where_they_are_allowed(a_run):
    port, node = a_run
    with Page(port) as page:
        page.open()
        assert page.ask("/stop", "POST", Origin=page.origin()).status == 403
    with Page(port, "--web-control") as page:
        assert page.ask("/stop", "POST", Origin=page.origin()).status == 403
        page.open()
        assert page.ask("/stop", "POST").status == 403
        assert page.ask("/stop", "POST", Origin="http://127.0.0.1:1").status == 403
        assert page.ask("/drain?node=nobody", "POST", Origin=page.origin()).status == 409
        assert node.poll() is None
        stream = messages(page.ask("/events"))
        assert next(stream)[1]["control"] is True
        answer = page.ask("/stop", "POST", Origin=page.origin())
        assert answer.status == 200
        assert "job" in answer.read().decode()
        assert node.wait(60) == 143
        for _, change in stream:
            if "stopped" in change.get("run", {}).get("why", ""):
                break
        assert page.end() == 0


def test_a_live_and_a_past_run_are_saved(tmp_path, a_run, monkeypatch):
    port, _ = a_run
    saved = run([DDPCTL, "web", "--save", tmp_path / "live.html", "--rdzv-endpoint", f"127.0.0.1:{port}"])
    assert saved.returncode == 0, saved.stderr
    page = (tmp_path / "live.html").read_text()
    assert "round 1 begins" in page
    assert "connect-src 'none'" in page
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run([DDPRUN, "--detach", "sh", "-c", "echo '</script>bye'; sleep 1; exit 3"])
    wait_for("its end", lambda: "exit code 3" in run([DDPCTL, "runs"]).stdout)
    refused = run([DDPCTL, "web"])
    assert refused.returncode == 1
    assert "--save" in refused.stderr
    saved = run([DDPCTL, "web", "--save", tmp_path / "past.html"])
    assert saved.returncode == 0, saved.stderr
    page = (tmp_path / "past.html").read_text()
    assert "exited with code 3" in page
    state = json.loads(re.search(r'id="state">(.*?)</script>', page, re.S)[1])
    assert any("</script>bye" in line for line in state["lines"])
    assert page.count("</script>") == 2
    assert state["samples"]


class OwnPage(Page):
    """The page of a ddprun --web, which says on stderr where it is."""

    def __init__(self, *flags, env=None):
        self.process = start([DDPRUN, "--web", 0, *flags], env=env)
        self.said = self.process.stderr.readline()
        self.at(re.search(r"http://127\.0\.0\.1:\d+/\?token=\w+", self.said)[0])


@pytest.mark.parametrize("flags", [[], ["--nnodes", 1, "--master-addr", "127.0.0.1", "--rdzv-id", "job"]], ids=["alone", "network"])
def test_ddprun_shows_its_run_from_begin_to_end(tmp_path, monkeypatch, flags):
    monkeypatch.chdir(tmp_path)
    if flags:
        flags = [*flags, "--master-port", free_port()]
    worker = "echo hello; while [ ! -e end ]; do sleep 0.1; done; exit 3"
    with OwnPage(*flags, "--nproc-per-node", 2, "sh", "-c", worker) as page:
        assert "; from another machine: ssh -L " in page.said
        assert page.ask("/events").status == 403
        page.open()
        stream = messages(page.ask("/events"))
        name, whole = next(stream)
        assert name == "whole"
        text = json.dumps(whole)
        while not ("hello" in text and "round 1 begins" in text and '"samples"' in text):
            text += json.dumps(next(stream)[1])
        assert page.ask("/stop", "POST", Origin=page.origin()).status == 403
        (tmp_path / "end").touch()
        last = [change["run"] for _, change in stream if "run" in change][-1]
        assert last["state"] == "over"
        assert "exited with code 3" in last["why"]
        assert page.process.wait(30) == 3
        if not flags:
            assert page.process.stderr.read().count("token=") == 0


def test_what_a_run_says_first_is_shown_though_its_page_was_earlier(tmp_path):
    """The page is open while a health check keeps the node from joining: there is no run yet."""
    worker = "echo hello; while [ ! -e end ]; do sleep 0.1; done"
    network = ["--nnodes", 1, "--master-addr", "127.0.0.1", "--master-port", free_port(), "--rdzv-id", "job"]
    go = tmp_path / "go"
    check = f"while [ ! -e {go} ]; do sleep 0.1; done"
    with OwnPage(*network, "--health-check", check, "sh", "-c", worker) as page:
        page.open()
        stream = messages(page.ask("/events"))
        text = json.dumps(next(stream)[1])
        while "not reached" not in text:
            text += json.dumps(next(stream)[1])
        assert "hello" not in text
        go.touch()
        while "hello" not in text:
            text += json.dumps(next(stream)[1])
        pathlib.Path("end").touch()
        assert page.process.wait(30) == 0


def test_a_page_of_ddprun_may_control_it():
    with OwnPage("--web-control", "sleep", 600) as page:
        page.open()
        stream = messages(page.ask("/events"))
        whole = next(stream)[1]
        assert whole["control"] is True
        text = json.dumps(whole)
        while "round 1 begins" not in text:
            text += json.dumps(next(stream)[1])
        assert page.ask("/stop", "POST", Origin=page.origin()).status == 200
        assert page.process.wait(60) == 143
    refused = run([DDPRUN, "--web-control", "true"])
    assert refused.returncode == 2
    assert "--web-control needs --web" in refused.stderr


def test_a_port_that_is_taken_is_told():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refused = run([DDPRUN, "--web", taken.getsockname()[1], "true"])
        assert refused.returncode == 1
        assert str(taken.getsockname()[1]) in refused.stderr


def test_curves_of_other_runs_are_beside(tmp_path, a_run, monkeypatch):
    port, _ = a_run
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    started = run([DDPRUN, "--detach", "sh", "-c", "sleep 1.5"])
    name = started.stdout.split()[0]
    wait_for("its end", lambda: "exit code 0" in run([DDPCTL, "runs"]).stdout)
    asked = [DDPCTL, "web", "--save", tmp_path / "page.html", "--rdzv-endpoint", f"127.0.0.1:{port}", "--compare"]
    refused = run([*asked, f"{name},job6"])
    assert refused.returncode == 1
    assert "job6" in refused.stderr
    assert not (tmp_path / "page.html").exists()
    done = run([*asked, name])
    assert done.returncode == 0, done.stderr
    state = json.loads(re.search(r'id="state">(.*?)</script>', (tmp_path / "page.html").read_text(), re.S)[1])
    assert [other["name"] for other in state["others"]] == [name]
    assert state["others"][0]["samples"]
    with Page(port, "--compare", name) as page:
        page.open()
        assert [other["name"] for other in next(messages(page.ask("/events")))[1]["others"]] == [name]
