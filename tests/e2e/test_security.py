# SPDX-License-Identifier: Apache-2.0
"""Who gets in, as a user meets it: tokens, certificates, plain text; and that the secret stays where it belongs."""

import contextlib
import os
import pathlib
import re
import socket
import stat
import subprocess
import sys
import threading
import time

import pytest
from conftest import BUILD, DDPRUN, REPO, SESSION, SHELL_DDPRUN, TOKEN
from conftest import agent_of, clean_environment, finish_all, processes_of_this_session, run, start

sys.path.insert(0, str(REPO / "tests" / "bench"))
import slow_connections  # noqa: E402

SERVICE = DDPRUN + "-rendezvous"
OTHER_TOKEN = os.urandom(32).hex()


def node(rank, port, *flags, program=("true",), **env):
    return start(
        [DDPRUN, "--nnodes=2", f"--node-rank={rank}", "--master-addr=127.0.0.1", f"--master-port={port}", *flags]
        + list(program),
        env=clean_environment(**env),
    )


def without_token(**more):
    env = clean_environment(**more)
    del env["DDPRUN_TOKEN"]
    return env


def start_node_without_token(rank, port, env, *flags):
    command = [DDPRUN, "--nnodes=2", f"--node-rank={rank}", "--master-addr=127.0.0.1", f"--master-port={port}"]
    return start([*command, *flags, "true"], env=env)


def test_two_agents_started_at_once_in_one_home_agree(port, tmp_path):
    env = without_token(XDG_CONFIG_HOME=str(tmp_path))
    results = finish_all([start_node_without_token(rank, port, env) for rank in (0, 1)])
    assert [code for code, _, _ in results] == [0, 0], results
    token = tmp_path / "ddprun" / "token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert re.fullmatch(r"[0-9a-f]{64}\n", token.read_text())
    assert os.listdir(token.parent) == ["token"]


def refused(first, second, *says):
    """The second node ends at once, in one sentence; then the first one is ended."""
    begin = time.monotonic()
    code, _, err = finish_all([second])[0]
    assert time.monotonic() - begin < 20  # and not the join timeout's 600 s
    assert code == 1 and len(err.splitlines()) == 1, err
    for words in says:
        assert words in err, err
    first.terminate()
    finish_all([first])


def test_another_token_is_told(port, tmp_path):
    first = node(0, port)
    assert "waiting" in first.stderr.readline()
    says = [f"at 127.0.0.1:{port} has another token", "copy ~/.config/ddprun/token", "DDPRUN_TOKEN on both"]
    refused(first, node(1, port, DDPRUN_TOKEN=OTHER_TOKEN), *says)


def test_plain_text_to_tls_and_tls_to_plain_text(port):
    first = node(0, port)
    assert "waiting" in first.stderr.readline()
    refused(first, node(1, port, "--insecure"), "speaks TLS", "without --insecure")
    first = node(0, port, "--insecure")
    assert "waiting" in first.stderr.readline()
    refused(first, node(1, port), "speaks plain text", "--insecure")


def test_plain_text_by_name_needs_no_token(port, tmp_path):
    env = without_token(PET_INSECURE="1")
    env.pop("HOME", None)
    env.pop("XDG_CONFIG_HOME", None)
    results = finish_all([start_node_without_token(rank, port, env) for rank in (0, 1)])
    assert [code for code, _, _ in results] == [0, 0], results


def test_no_home(port):
    env = without_token()
    env.pop("HOME", None)
    env.pop("XDG_CONFIG_HOME", None)
    code, _, err = finish_all([start_node_without_token(0, port, env)])[0]
    assert code == 2 and "HOME is not set" in err and "--token-file" in err, err
    assert run([DDPRUN, "--standalone", "true"], env=env).returncode == 0  # one node meets nobody


@pytest.mark.parametrize(
    ("mode", "content", "says"),
    [
        (0o644, TOKEN, "can be read by others (mode 644)"),
        (0o600, "hunter2", "must have 64 hexadecimal digits"),
        (None, "", "No such file"),
    ],
)
def test_bad_token_files(port, tmp_path, mode, content, says):
    path = tmp_path / "token"
    if mode is not None:
        path.write_text(content)
        path.chmod(mode)
    code, _, err = finish_all([start_node_without_token(0, port, without_token(), f"--token-file={path}")])[0]
    assert code == 2 and says in err and len(err.splitlines()) == 1, err


def test_own_certificates(port, tmp_path):
    def openssl(*command):
        subprocess.run(["openssl", *command], cwd=tmp_path, check=True, capture_output=True)

    openssl("req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.crt")
    openssl("req", "-newkey", "ed25519", "-nodes", "-subj", "/CN=node", "-keyout", "node.key", "-out", "node.csr")
    (tmp_path / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    sign = ["x509", "-req", "-in", "node.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"]
    openssl(*sign, "-extfile", "names", "-out", "node.crt")
    flags = [f"--tls-cert={tmp_path}/node.crt", f"--tls-key={tmp_path}/node.key", f"--tls-ca={tmp_path}/ca.crt"]
    results = finish_all([node(rank, port, *flags) for rank in (0, 1)])
    assert [code for code, _, _ in results] == [0, 0], results
    code, _, err = finish_all([node(0, port, *flags[:2])])[0]
    assert code == 2 and "all three or none" in err, err


def test_workers_keep_the_limit_of_files_that_the_service_raises(port):
    """A service has a file for each node; select() in a worker cannot stand as many."""
    command = f"{SHELL_DDPRUN} --nnodes=1 --rdzv-endpoint=127.0.0.1:{port} --rdzv-id=r sh -c 'ulimit -Sn'"
    done = run(["sh", "-c", f"ulimit -Sn 300; exec {command}"])
    assert done.returncode == 0 and done.stdout.split()[-1] == "300", done


def memory_of(pid):
    """All that the process can read of itself, without what is mapped from files: a core file and more."""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
        for line in maps:
            begin, end, access = re.match(r"(\w+)-(\w+) (\S+)", line).groups()
            if not access.startswith("rw"):
                continue
            memory.seek(int(begin, 16))
            try:
                yield memory.read(int(end, 16) - int(begin, 16))
            except OSError:
                pass


def assert_clean(pid, secret):
    forms = [secret.encode(), secret.upper().encode(), bytes.fromhex(secret)]
    for name in ("environ", "cmdline"):
        content = pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
        assert not any(form in content for form in forms), (pid, name)
    mark_seen = False
    for region in memory_of(pid):
        assert not any(form in region for form in forms), pid
        mark_seen = mark_seen or SESSION.encode() in region
    assert mark_seen  # what is looked for would be found


@pytest.mark.skipif(os.geteuid() != 0, reason="reading another process's memory needs root")
@pytest.mark.parametrize("source", ["variable", "file"])
def test_the_secret_is_nowhere(port, tmp_path, source):
    """Not in an argument list, an environment, a log, nor the memory (thus a core file) of any process of a run."""
    secret = os.urandom(32).hex()
    path = tmp_path / "token"
    path.write_text(secret)
    path.chmod(0o600)
    env = without_token()
    flags = [f"--log-dir={tmp_path}/logs", "--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=r"]
    if source == "variable":
        env["DDPRUN_TOKEN"] = secret
    else:
        flags.append(f"--token-file={path}")
    own = [f"--token-file={path}"] if source == "file" else []
    service = start([SERVICE, "--port", port, *own], env=env)
    assert "listening" in service.stdout.readline()
    script = "env; tr '\\0' '\\n' < /proc/$PPID/environ; echo running; read line"
    nodes = [start([DDPRUN, *flags, "sh", "-c", script + f" < {tmp_path}/go"], env=env) for _ in range(2)]
    os.mkfifo(tmp_path / "go")
    said = ["", ""]
    for i, process in enumerate(nodes):
        while "running" not in said[i]:
            line = process.stdout.readline()
            assert line, process.stderr.read()
            said[i] += line
    # Wardens, agents, workers, the service: each is found by the mark in its environment.
    pids = [int(pid) for pid, _ in processes_of_this_session()]
    assert len(pids) >= 7, pids
    for pid in pids:
        assert_clean(pid, secret)
    with open(tmp_path / "go", "w") as go:
        go.write("1\n2\n")
    results = finish_all(nodes)
    service.terminate()
    results += finish_all([service])
    assert [code for code, _, _ in results] == [0, 0, 0], results
    logs = [path.read_text() for path in (tmp_path / "logs").rglob("*.log")]
    assert len(logs) == 4
    for text in [*said, *logs, *(out + err for _, out, err in results)]:
        assert secret not in text


@pytest.mark.skipif(
    pathlib.Path("/proc/sys/kernel/core_pattern").read_text().strip() != "core", reason="core files go elsewhere"
)
def test_a_crashing_agent_leaves_no_core(port, tmp_path):
    """Beyond the wiped secret: its certificates' keys must not get out either."""
    run(["sh", "-c", f"ulimit -c unlimited; cd {tmp_path}; kill -ABRT $$"])
    if not os.listdir(tmp_path):
        pytest.skip("this machine writes no core files at all")
    for core in tmp_path.iterdir():
        core.unlink()
    command = f"{SHELL_DDPRUN} --nnodes=2 --node-rank=0 --master-addr=127.0.0.1 --master-port={port} true"
    first = start(["sh", "-c", f"ulimit -c unlimited; cd {tmp_path}; exec {command}"])
    assert "waiting" in first.stderr.readline()
    agent = agent_of(first.pid)
    os.kill(agent, 6)
    code, _, err = finish_all([first])[0]
    assert code == 134 and not os.listdir(tmp_path), (code, err, os.listdir(tmp_path))


def test_strangers_do_not_disturb_a_run():
    """The short form of tests/bench/slow_connections.py, which has the figures."""
    figures = slow_connections.measure(BUILD, connections=200, ports=1024)
    assert figures["memory grew by, MB"] < 64, figures


class HangsUp(threading.Thread):
    """Listens, and closes each connection in the middle of its TLS handshake."""

    def __init__(self):
        super().__init__(daemon=True)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection, contextlib.suppress(OSError):
                    connection.recv(1)

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self.join()
        self._listener.close()


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["ddprun", "ddpctl status", "ddprun doctor"])
def test_a_program_that_ends_in_the_middle_of_a_handshake_does_not_crash(name, tmp_path):
    """gRPC's threads go on connecting until the process is gone. 300 ends, ten at a time."""
    peer = HangsUp()
    to = ["--rdzv-endpoint", f"127.0.0.1:{peer.port}"]
    joins = [*to, "--nnodes", "2", "--join-timeout", "0.1"]
    command = {
        "ddprun": [DDPRUN, *joins, "true"],
        "ddpctl status": [BUILD / "bin" / "ddpctl", "status", *to, "--timeout", "0.1"],
        "ddprun doctor": [DDPRUN, "doctor", *joins],
    }[name]
    for _ in range(30):
        results = finish_all([start(command, env=clean_environment(HOME=str(tmp_path))) for _ in range(10)])
        assert {code for code, _, _ in results} == {1}, results
    peer.close()


@pytest.mark.nightly
def test_a_service_that_ends_in_the_middle_of_a_handshake_does_not_crash():
    for _ in range(300):
        service = start([SERVICE, "--port", "0"])
        port = int(service.stdout.readline().rpartition(":")[2])
        with contextlib.ExitStack() as stack:
            for _ in range(5):
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), 10))
                connection.sendall(b"\x16\x03\x01\x02\x00\x01")  # a TLS record that says hello, and half of it
            service.terminate()
            code, _, err = finish_all([service])[0]
        assert code == 0, err


def test_nothing_is_left_behind():
    """Runs last in this file: no process that any test above started may be alive."""
    assert not processes_of_this_session()
