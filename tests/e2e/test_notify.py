# SPDX-License-Identifier: Apache-2.0
"""`ddprun --notify`: to servers of the test's own on loopback, and to commands."""

import json
import os
import pathlib
import ssl
import subprocess

import pytest
from conftest import DDPRUN, clean_environment, free_port, run, start, takes_less, wait_for
from http_receiver import Proxy, Receiver


class Hook(Receiver):
    def __init__(self, **settings):
        super().__init__(**settings)
        self.url += "/hook/secret?key=1"

    def bodies(self):
        return [json.loads(body) for _, _, _, body in self.got]


def test_a_run_says_that_it_starts_and_how_it_ends():
    with Hook() as hook:
        ended = run([DDPRUN, "--rdzv-id", "job7", "--notify", hook.url, "true"])
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [one["event"] for one in hook.bodies()] in (["started", "finished"], ["finished"])  # together, if it is quick
    _, path, headers, _ = hook.got[-1]
    assert (path, headers["Content-Type"]) == ("/hook/secret?key=1", "application/json")
    last = hook.bodies()[-1]
    assert (last["version"], last["run"], last["exit_code"], last["rank"]) == (1, "job7", 0, None)
    assert last["text"].endswith("all workers succeeded")


def test_a_death_is_told_within_two_seconds_and_the_first_cause_at_the_end(tmp_path):
    """Longer than 30 s after the start: what is told then is told at once. Here the start is not told, and so the death is the first."""
    died = tmp_path / "died"
    script = f"[ $RANK = 1 ] && sleep 0.3 && date +%s.%N > {died} && kill -9 $$; sleep 1000"
    tell = tmp_path / "tell"
    tell.write_text(f"#!/bin/sh\ncat >> {tmp_path}/got; echo >> {tmp_path}/got; date +%s.%N >> {tmp_path}/times\n")
    tell.chmod(0o755)
    ended = run([DDPRUN, "--rdzv-id", "job7", "--nproc-per-node", "2", "--term-timeout", "1", "--notify", str(tell), "sh", "-c", script])
    assert ended.returncode == 137
    got = [json.loads(line) for line in (tmp_path / "got").read_text().splitlines()]
    assert [one["event"] for one in got] == ["started", "failed"]
    assert "rank 1 (local rank 1" in got[1]["text"]
    assert "SIGKILL" in got[1]["text"]
    assert (got[1]["rank"], got[1]["exit_code"]) == (1, 137)
    told = float((tmp_path / "times").read_text().splitlines()[1])
    assert told - float(died.read_text()) < 2 + 1  # the workers have 1 s to end; before that it would be told too


def test_services_get_their_form_and_restarts_are_told_together():
    for prefix, member in (("slack+", "text"), ("discord+", "content"), ("ntfy+", None)):
        with Hook(status=204 if prefix == "discord+" else 200) as hook:
            flags = ["--rdzv-id", "job7", "--max-restarts", "1", "--notify", prefix + hook.url]
            ended = run([DDPRUN, *flags, "sh", "-c", "sleep 0.3; exit 3"])
            assert ended.returncode == 3
            assert "--notify" not in ended.stderr, ended.stderr
        texts = [body.decode() if member is None else json.loads(body)[member] for _, _, _, body in hook.got]
        assert texts[0].startswith("run job7 on ")
        assert "exited with code 3" in texts[-1]
        assert "round 2 begins: 1 worker on 1 node" in texts[-1]
        assert hook.got[0][2]["Content-Type"].startswith("text/plain" if member is None else "application/json")


def test_alive_makes_silence_an_alarm():
    """Whatever is asked for, messages come 30 s apart."""
    with Hook() as hook:
        running = start([DDPRUN, "--notify", hook.url, "--notify-alive", "0.2", "sleep", "1000"])
        wait_for("a second message", lambda: len(hook.got) >= 2)
        running.terminate()
        running.communicate(timeout=60)
    events = [one["event"] for one in hook.bodies()]
    assert events == ["started", "alive", "failed"]
    assert hook.got[1][0] - hook.got[0][0] > 25
    assert "round 1: 1 ranks on 1 node" in hook.bodies()[1]["text"]


@pytest.mark.parametrize("kind", ["refuses", "answers 500", "hangs", "no command", "a command that hangs"])
def test_nobody_who_listens_is_in_the_way_of_the_run(kind):
    """The end of the run waits 3 s for the last message at most; one sentence says so, without the secret."""
    with Hook(status=500 if kind == "answers 500" else 200, hangs=kind == "hangs") as hook:
        target = {
            "refuses": f"http://127.0.0.1:{free_port()}/hook/secret?key=1",
            "no command": "no-such-command",
            "a command that hangs": "sleep 1000",
        }.get(kind, hook.url)

        def a_run():
            ended = run([DDPRUN, "--notify", target, "sh", "-c", "sleep 0.2; echo done"])
            assert (ended.returncode, ended.stdout) == (0, "[0] done\n")
            assert ended.stderr.count("ddprun: --notify: ") == 1, ended.stderr
            assert "secret" not in ended.stderr

        assert takes_less(8, a_run)


def test_what_is_no_target_is_refused_before_anything_starts():
    for wrong in ("ftp://host/x", "slack+topic", ""):
        refused = run([DDPRUN, "--notify", wrong, "echo", "started"])
        assert (refused.returncode, refused.stdout) == (2, ""), wrong
        assert "--notify" in refused.stderr


def certificate_of(folder, name):
    """A certificate that signs itself, as a file and as the context of a server."""
    key, certificate = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", "-keyout", key,
         "-out", certificate, "-subj", "/CN=hook", "-addext", f"subjectAltName={name}"],
        check=True,
        capture_output=True,
        timeout=60,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return certificate, context


def test_https_is_checked_against_authorities(tmp_path):
    certificate, context = certificate_of(tmp_path, "IP:127.0.0.1")
    with Hook(context=context) as hook:
        unknown = run([DDPRUN, "--notify", hook.url, "true"])
        assert unknown.returncode == 0
        assert "certificate verify failed" in unknown.stderr
        assert hook.got == []
        known = run([DDPRUN, "--notify", hook.url, "true"], env=clean_environment(SSL_CERT_FILE=str(certificate)))
        assert (known.returncode, known.stderr) == (0, "")
        assert hook.bodies()[-1]["event"] == "finished"


def test_a_server_elsewhere_is_asked_through_the_proxy(tmp_path):
    certificate, context = certificate_of(tmp_path, "DNS:hooks.example")
    with Hook(context=context) as hook, Proxy(hook.server.server_port, "user:word") as proxy:

        def told(**variables):
            env = clean_environment(**{"SSL_CERT_FILE": str(certificate), "https_proxy": f"http://user:word@{proxy.place}", **variables})
            return run([DDPRUN, "--notify", "https://hooks.example/hook/secret", "true"], env=env)

        done = told()
        assert (done.returncode, done.stderr) == (0, "")
        assert hook.bodies()[-1]["event"] == "finished"
        assert set(proxy.asked) == {"CONNECT hooks.example:443"}
        count = len(proxy.asked)
        direct = told(no_proxy="hooks.example")
        assert direct.returncode == 0
        wrong = told(https_proxy=f"http://{proxy.place}")
        assert wrong.returncode == 0 and "--notify" in wrong.stderr and "secret" not in wrong.stderr
        near = run([DDPRUN, "--notify", f"{hook.url}", "true"], env=clean_environment(https_proxy=f"http://{proxy.place}"))
        assert "certificate verify failed" in near.stderr
        assert len(proxy.asked) == count


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY"])
def test_one_without_tls_too(variable):
    with Receiver() as proxy:
        env = clean_environment(**{variable: proxy.url})
        done = run([DDPRUN, "--notify", "http://ntfy.example/topic", "true"], env=env)
        assert (done.returncode, done.stderr) == (0, "")
        assert {path for _, path, _, _ in proxy.got} == {"http://ntfy.example:80/topic"}


def test_of_two_nodes_one_tells(tmp_path):
    port = free_port()
    with Hook() as hook:
        flags = ["--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "job7", "--notify", hook.url]
        nodes = [start([DDPRUN, *flags, "sleep", "0.5"]) for _ in range(2)]
        for node in nodes:
            out, err = node.communicate(timeout=60)
            assert (node.returncode, err) == (0, "")
    assert [one["event"] for one in hook.bodies()] == ["started", "finished"]
    assert "2 workers on 2 nodes" in hook.bodies()[0]["text"]
