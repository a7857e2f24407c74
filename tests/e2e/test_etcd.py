# SPDX-License-Identifier: Apache-2.0
"""A run whose service may be lost: several services, with their journal in a real etcd of three members. The workers of a node keep
their processes whichever service or member goes, and the run goes on with the service that leads then."""

import json
import os
import pathlib
import secrets
import signal
import time

import pytest
from conftest import BIN, clean_environment, finish_all, free_port, run, start, wait_for
from etcd_cluster import MEMBERS, VERSIONS, Etcd, Services, make_certificates, node, status
from process_tree import is_alive, kill_tree, listening, tree_of

pytestmark = pytest.mark.skipif(VERSIONS["3.4"] is None, reason="needs etcd")

# A worker that writes its process id and ends when the file `end` comes.
WORKER = ["sh", "-c", 'echo "rank $RANK is up"; echo $$ > pid.$RANK; while [ ! -e end ]; do sleep 0.1; done; echo "rank $RANK of round $DDPRUN_ROUND ends"']


@pytest.fixture(params=["3.4", pytest.param("3.5", marks=pytest.mark.nightly)])
def etcd(request, tmp_path):
    if VERSIONS[request.param] is None:
        pytest.skip(f"needs etcd {request.param}")
    folder = tmp_path / "etcd"
    folder.mkdir()
    with Etcd(folder, VERSIONS[request.param]) as cluster:
        yield cluster


class Run:
    """Two nodes with a worker each."""

    def __init__(self, services, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        self.services, self.folder = services, tmp_path
        self.nodes = [node(services, rank, *WORKER) for rank in (0, 1)]
        self.pids = [int(wait_for("the workers", self.file_of(rank))) for rank in (0, 1)]
        wait_for("both nodes", lambda: self.hears() == 2)

    def file_of(self, rank):
        file = self.folder / f"pid.{rank}"
        return lambda: file.exists() and file.read_text()

    def hears(self):
        """How many nodes are connected to the service that leads."""
        found = status(self.services)
        nodes = json.loads(found)["runs"][0]["nodes"] if found else []
        return sum(one["state"] == "running" for one in nodes)

    def goes_on(self):
        wait_for("both nodes", lambda: self.hears() == 2)
        assert all(is_alive(pid) for pid in self.pids)

    def end(self):
        (self.folder / "end").touch()
        for rank, (code, out, err) in enumerate(finish_all(self.nodes)):
            assert code == 0 and f"rank {rank} of round 1 ends" in out, (code, out, err)


def test_another_service_leads_when_the_leader_is_killed(etcd, tmp_path, monkeypatch):
    with Services(tmp_path, etcd, "--insecure") as services, open(tmp_path / "lines", "w") as lines:
        training = Run(services, tmp_path, monkeypatch)
        start([BIN / "ddpctl", "logs", "-f", "--rdzv-endpoint", services.endpoint, "--rdzv-id", "run", "--insecure"], stdout=lines)
        wait_for("its first lines", lambda: (tmp_path / "lines").read_text())
        for count in (1, 2):
            leader = services.leader()
            services.processes[leader].kill()
            services.processes[leader].wait()
            wait_for("another leader", lambda: services.leader() is not None)
            training.goes_on()
            services.start(leader)
            wait_for("it stands by", lambda leader=leader: any("stands by" in line for line in services.said(leader)))
            wait_for("its lines", lambda count=count: (tmp_path / "lines").read_text().count("connected again") == count)
        training.end()


def test_a_leader_that_was_stopped_writes_nothing_when_it_wakes_up(etcd, tmp_path, monkeypatch):
    with Services(tmp_path, etcd, "--insecure") as services:
        training = Run(services, tmp_path, monkeypatch)
        old = services.leader()
        services.processes[old].send_signal(signal.SIGSTOP)
        new = services.await_another(old)
        training.goes_on()
        services.processes[old].send_signal(signal.SIGCONT)
        wait_for("it stands by", lambda: services.said(old)[-1] == f"stands by: the service at 127.0.0.1:{services.ports[new]} leads")
        training.goes_on()
        assert services.leader() == new
        training.end()


def test_a_service_that_ends_gives_its_lease_back(etcd, tmp_path, monkeypatch):
    with Services(tmp_path, etcd, "--insecure") as services:
        training = Run(services, tmp_path, monkeypatch)
        old = services.leader()
        services.processes[old].terminate()
        assert services.processes[old].wait(timeout=10) == 0
        begin = time.monotonic()
        wait_for("another leader", lambda: services.leader(but=old) is not None)
        assert time.monotonic() - begin < 2  # its lease would be over later
        training.goes_on()
        training.end()


def test_members_of_etcd_go_and_come_back(etcd, tmp_path, monkeypatch):
    with Services(tmp_path, etcd, "--insecure") as services:
        training = Run(services, tmp_path, monkeypatch)
        for member in (etcd.leader(), None):
            member = member if member is not None else (etcd.leader() + 1) % 3
            etcd.kill(member)
            training.goes_on()
            etcd.start(member)
            wait_for("etcd", etcd.is_healthy)
        # Without a majority nothing is decided, and nothing is lost.
        for member in (0, 1):
            etcd.kill(member)
        for member in (0, 1):
            etcd.start(member)
        wait_for("etcd", etcd.is_healthy)
        training.goes_on()
        # What was compacted is not needed.
        revision = json.loads(etcd.ctl("endpoint", "status", "-w", "json").stdout)[0]["Status"]["header"]["revision"]
        assert etcd.ctl("compact", revision).returncode == 0
        leader = services.leader()
        services.processes[leader].kill()
        services.processes[leader].wait()
        training.goes_on()
        training.end()


def test_a_member_of_etcd_that_hangs_changes_no_leader(etcd, tmp_path, monkeypatch):
    """Whichever the leader's calls go to: its lease is extended through another one in time. etcd's own leader is spared, without which
    etcd decides nothing for a moment."""
    with Services(tmp_path, etcd, "--insecure") as services:
        training = Run(services, tmp_path, monkeypatch)
        leader, head = services.leader(), etcd.leader()
        for member in (member for member in range(3) if member != head):
            etcd.processes[member].send_signal(signal.SIGSTOP)
            begin = time.monotonic()
            wait_for("more than two leases", lambda begin=begin: time.monotonic() - begin > 5)
            assert services.leader() == leader and services.said(leader)[-1] == "leads", services.said(leader)
            training.goes_on()
            etcd.processes[member].send_signal(signal.SIGCONT)
        assert services.said(leader).count("leads") == 1
        training.end()


def test_a_node_that_hosts_the_leader_is_lost_like_any_other(etcd, tmp_path, monkeypatch):
    """Each node's ddprun hosts a service; the one that leads is killed with all its processes."""
    monkeypatch.chdir(tmp_path)
    ports = [free_port() for _ in range(3)]
    endpoint = ",".join(f"127.0.0.1:{port}" for port in ports)
    command = [BIN / "ddprun", "--nnodes", "2:3", "--max-restarts", "2", "--rdzv-endpoint", endpoint, "--rdzv-id", "run", "--insecure"]
    command += ["--journal", etcd.place(), "--lease", "3", "--rdzv-conf", "last_call_timeout=2", "--nproc-per-node", "1", *WORKER]
    nodes = []
    for count in (1, 2, 3):  # one after the other, so that each takes another port
        nodes.append(start(command, start_new_session=True))
        wait_for("its service", lambda count=count: sum("LISTEN" in line for line in listening(ports)) >= count)
    wait_for("the workers", lambda: all((tmp_path / f"pid.{rank}").exists() for rank in range(3)))
    leader = etcd.ctl("get", "--print-value-only", "test/leader").stdout.strip()
    host = next(process for process in nodes if owns(process, int(leader.split(":")[1])))
    others = [process for process in nodes if process is not host]
    kill_tree(host)
    wait_for("another leader", lambda: etcd.ctl("get", "--print-value-only", "test/leader").stdout.strip() not in ("", leader))

    def in_next_round():
        done = run([BIN / "ddpctl", "status", "--rdzv-endpoint", endpoint, "--rdzv-id", "run", "--json", "--insecure", "--timeout", "2"])
        return done.returncode == 0 and json.loads(done.stdout)["runs"][0]["round"] == 2 and '"running"' in done.stdout

    wait_for("the next round", in_next_round)
    (tmp_path / "end").touch()
    for code, out, err in finish_all(others):
        assert code == 0 and "of round 2 ends" in out, (code, out, err)


def owns(process, port):
    words = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    socket = next(f"socket:[{word[9]}]" for word in words if int(word[1].split(":")[1], 16) == port and word[3] == "0A")
    return any(os.readlink(fd) == socket for pid in tree_of(process.pid) for fd in links(pid))


def links(pid):
    found = []
    for fd in pathlib.Path(f"/proc/{pid}/fd").glob("*"):
        try:
            os.readlink(fd)
            found.append(fd)
        except OSError:
            pass
    return found


def test_a_full_etcd_ends_the_service_with_one_sentence(tmp_path):
    folder = tmp_path / "etcd"
    folder.mkdir()
    with Etcd(folder, VERSIONS["3.4"], "--quota-backend-bytes", "100000") as etcd:
        for i in range(20):
            etcd.ctl("put", f"other/{i}", "x" * 50_000)
        service = run([BIN / "ddprun-rendezvous", "--port", "0", "--insecure", "--journal", etcd.place()], timeout=60)
        assert service.returncode == 1, service
        assert "database space exceeded" in service.stderr and "--quota-backend-bytes" in service.stderr, service.stderr


def test_a_second_service_must_be_asked_to_stand_by(tmp_path):
    folder = tmp_path / "etcd"
    folder.mkdir()
    with Etcd(folder, VERSIONS["3.4"]) as etcd:
        first = start([BIN / "ddprun-rendezvous", "--port", "0", "--insecure", "--journal", etcd.place()])
        try:
            at = first.stdout.readline().split()[-1]
            wait_for("it leads", lambda: first.stdout.readline().strip() == "leads")
            second = run([BIN / "ddprun-rendezvous", "--port", "0", "--insecure", "--journal", etcd.place()])
            assert second.returncode == 1 and f"the service at {at} leads with this journal" in second.stderr, second
            assert "--standby" in second.stderr
        finally:
            first.terminate()
            first.communicate(timeout=30)


def test_etcd_that_is_not_there_is_named(tmp_path):
    """The service waits for it: etcd may be started later."""
    at = f"127.0.0.1:{free_port()}"
    service = start([BIN / "ddprun-rendezvous", "--port", "0", "--insecure", "--journal", f"etcd://{at}"])
    try:
        lines = [service.stdout.readline() for _ in range(2)]
        assert any(f"etcd at {at} has not answered for 2 s (connection refused)" in line for line in lines), lines
    finally:
        service.terminate()
        service.communicate(timeout=30)


@pytest.mark.parametrize(
    "flags, complaint",
    [
        (["--journal", "etcd://"], "names no member of etcd"),
        (["--journal", "etcd://h"], "without host or port"),
        (["--journal", "etcd://h:1", "--journal-sync"], "--journal-sync is for a folder"),
        (["--standby"], "needs a journal in etcd"),
        (["--journal-tls-ca", "c"], "need a journal in etcd"),
        (["--journal", "etcd://h:1", "--journal-tls-cert", "c"], "go together"),
        (["--journal", "etcd://h:1", "--journal-tls-ca", "/nowhere/ca.pem"], "--journal-tls-ca: cannot read /nowhere/ca.pem"),
    ],
)
def test_wrong_flags_are_one_sentence(flags, complaint):
    done = run([BIN / "ddprun-rendezvous", "--port", "0", "--insecure", *flags])
    assert done.returncode in (1, 2) and complaint in done.stderr and done.stderr.count("\n") == 1, done


def test_etcd_over_tls(tmp_path, monkeypatch):
    tls = tmp_path / "tls"
    tls.mkdir()
    make_certificates(tls)
    folder = tmp_path / "etcd"
    folder.mkdir()
    with Etcd(folder, VERSIONS["3.4"], tls=tls) as etcd:
        flags = ["--journal-tls-ca", tls / "ca.pem", "--journal-tls-cert", tls / "member.pem", "--journal-tls-key", tls / "member.key"]
        with Services(tmp_path, etcd, "--insecure", *flags) as services:
            training = Run(services, tmp_path, monkeypatch)
            leader = services.leader()
            services.processes[leader].kill()
            training.goes_on()
            training.end()
            # The journal is nobody else's to read: plain text is not answered.
            plain = start([BIN / "ddprun-rendezvous", "--port", "0", "--insecure", "--journal", etcd.place()])
            lines = [plain.stdout.readline() for _ in range(2)]
            plain.terminate()
            plain.communicate(timeout=30)
            assert any("has not answered" in line for line in lines), lines


def test_a_standby_sends_nodes_to_the_leader_and_leaves_it_in_peace(tmp_path):
    """With TLS; nodes ask it first. A service that does not see the leader takes its place after some seconds."""
    folder = tmp_path / "etcd"
    folder.mkdir()
    env = clean_environment(DDPRUN_TOKEN=secrets.token_hex(32))
    with Etcd(folder, VERSIONS["3.4"]) as etcd, Services(tmp_path, etcd, env=env) as services:
        standby = next(i for i in range(MEMBERS) if i != services.leader())
        places = sorted(services.ports, key=lambda port: port != services.ports[standby])
        endpoint = ",".join(f"127.0.0.1:{port}" for port in places)
        command = [BIN / "ddprun", "--nnodes", "2", "--rdzv-endpoint", endpoint, "--rdzv-id", "run", "true"]
        for code, out, err in finish_all([start(command, env=env) for _ in range(2)]):
            assert code == 0, (out, err)
        said = [line for i in range(MEMBERS) for line in services.said(i)]
        assert not any("no longer leads" in line for line in said), said


def test_the_services_know_each_other_by_the_runs_secret(tmp_path, monkeypatch):
    """With TLS: a standby's probe of the leader, and nodes that go from one service to the next."""
    folder = tmp_path / "etcd"
    folder.mkdir()
    env = clean_environment(DDPRUN_TOKEN=secrets.token_hex(32))
    with Etcd(folder, VERSIONS["3.4"]) as etcd, Services(tmp_path, etcd, env=env) as services:
        monkeypatch.chdir(tmp_path)
        nodes = [node(services, rank, *WORKER, flags=(), env=env) for rank in (0, 1)]
        wait_for("the workers", lambda: all((tmp_path / f"pid.{rank}").exists() for rank in (0, 1)))
        old = services.leader()
        services.processes[old].kill()
        new = services.await_another(old)
        wait_for("both nodes", lambda: status(services, "--timeout", "2", env=env).count('"running"') >= 3)
        assert new != old
        (tmp_path / "end").touch()
        for code, out, err in finish_all(nodes):
            assert code == 0 and "of round 1 ends" in out, (code, out, err)
