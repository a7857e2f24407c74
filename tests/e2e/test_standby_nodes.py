# SPDX-License-Identifier: Apache-2.0
"""A run whose service other nodes have copies of: node 0 ends, is killed, is stopped and wakes up, is started again."""

import json
import signal

import pytest
from conftest import BIN, clean_environment, finish_all, free_port, run, start, wait_for
from process_tree import is_alive, kill_tree, signal_all, tree_of

WORKER = ["sh", "-c", 'echo $$ > pid.$RANK; while [ ! -e end ]; do sleep 0.1; done; echo "rank $RANK of round $DDPRUN_ROUND ends"']


class Run:
    """Three nodes with a worker each, whose services copy each other's journal; node 0 has the first one."""

    def __init__(self, folder, *flags, services=3, lease=8, env=None):
        self.folder, self.env, self.flags = folder, env, flags
        self.ports = [free_port() for _ in range(services)]
        self.endpoint = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        self.command = [BIN / "ddprun", "--nnodes", "2:3", "--max-restarts", "2", "--rdzv-endpoint", self.endpoint, "--rdzv-id", "run"]
        self.command += ["--standby-nodes", services - 1, "--lease", lease, "--rdzv-conf", "last_call_timeout=2", "--nproc-per-node", "1"]
        self.command += [*flags, *WORKER]
        self.nodes = []
        for count in range(3):  # one after the other, so that each takes another port
            self.nodes.append(self.start(count))
            if count < services:
                self.wait_for("its service", lambda count=count: "the rendezvous service here" in self.said(count))
        self.wait_for("the workers", lambda: all(self.pid(rank) for rank in range(3)))
        self.round = self.wait_for("three nodes", lambda: self.round_of(3))

    def wait_for(self, what, question):
        try:
            return wait_for(what, question)
        except AssertionError as error:
            raise AssertionError(f"{error}; ports {self.ports}, nodes said {[self.said(i) for i in range(len(self.nodes))]}") from error

    def start(self, index):
        return start(self.command, env=self.env, start_new_session=True, stderr=open(self.folder / f"node{index}.log", "ab"))

    def said(self, index):
        return (self.folder / f"node{index}.log").read_text()

    def pid(self, rank):
        file = self.folder / f"pid.{rank}"
        return file.exists() and int(file.read_text() or 0)

    def hears(self):
        """The round, and how many nodes the service that leads has in it."""
        done = self.ctl("status", "--rdzv-endpoint", self.endpoint, "--rdzv-id", "run", "--json", "--timeout", "2")
        if done.returncode != 0:
            return None
        status = json.loads(done.stdout)["runs"][0]
        return status["round"], sum(node["state"] == "running" for node in status["nodes"])

    def round_of(self, nodes):
        """The round, if it is one of so many nodes."""
        heard = self.hears()
        return heard and heard[1] == nodes and heard[0]

    def await_next_round(self):
        wait_for("the next round", lambda: (self.round_of(2) or 0) > self.round)
        return f"of round {self.round_of(2)} ends"

    def ctl(self, *words):
        return run([BIN / "ddpctl", *words, *self.flags], env=self.env)

    def promote(self, index, *flags):
        return self.ctl("promote", f"127.0.0.1:{self.ports[index]}", *flags)

    def copies(self, count):
        """As the service that leads says it."""
        words = "1 other service has" if count == 1 else f"{count} other services have"
        return lambda: f"leads, and {words} a copy of its journal" in self.said(0)

    def end(self, nodes, text):
        (self.folder / "end").touch()
        for code, out, _ in finish_all(nodes):
            assert code == 0 and text in out, (code, out, [self.said(i) for i in range(3)])


@pytest.fixture(params=["", "--insecure"], ids=["token", "insecure"])
def flags(request, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return [request.param] if request.param else []


def test_node_0_is_lost_and_a_person_promotes_another(flags, tmp_path):
    training = Run(tmp_path, *flags)
    wait_for("the copies", training.copies(2))
    refused = training.promote(1)
    assert refused.returncode == 1 and f"of the one at 127.0.0.1:{training.ports[0]}, which leads" in refused.stderr
    assert "leads already" in training.promote(0).stderr
    kill_tree(training.nodes[0])
    wait_for("a standby that has lost it", lambda: f"`ddpctl promote 127.0.0.1:{training.ports[1]}` makes this one lead" in training.said(1))
    assert training.hears() is None  # nobody leads by itself
    promoted = training.promote(1)
    assert promoted.returncode == 0 and "leads from now on" in promoted.stdout, promoted
    text = training.await_next_round()
    wait_for("the other copy", lambda: f"stands by with a copy: the service at 127.0.0.1:{training.ports[1]} leads" in training.said(2))
    training.end(training.nodes[1:], text)


def test_node_0_leaves_and_hands_over(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    training = Run(tmp_path)
    wait_for("the copies", training.copies(2))
    rank = next(rank for rank in range(3) if training.pid(rank) in tree_of(training.nodes[0].pid))
    drained = training.ctl("drain", "--rdzv-endpoint", training.endpoint, "--rdzv-id", "run", rank)
    assert drained.returncode == 0, drained
    assert training.nodes[0].wait(30) == 0, training.said(0)
    training.nodes[0].communicate()
    training.end(training.nodes[1:], training.await_next_round())


def test_a_service_that_was_stopped_gives_way_when_it_wakes_up(tmp_path, monkeypatch):
    """Its worker was not stopped, and all go on in the same round with the same processes."""
    monkeypatch.chdir(tmp_path)
    training = Run(tmp_path, lease=60)
    wait_for("the copies", training.copies(2))
    pids = [training.pid(rank) for rank in range(3)]
    stopped = [pid for pid in tree_of(training.nodes[0].pid) if pid not in pids]
    signal_all(stopped, signal.SIGSTOP)
    wait_for("a standby that has lost it", lambda: "makes this one lead" in training.said(1))
    assert training.promote(1).returncode == 0
    wait_for("a leader", lambda: training.hears() is not None)
    signal_all(stopped, signal.SIGCONT)
    wait_for("its end", lambda: "no longer leads: another service was promoted meanwhile" in training.said(0))
    wait_for("three nodes", lambda: training.round_of(3) == training.round)
    assert [training.pid(rank) for rank in range(3)] == pids and all(is_alive(pid) for pid in pids)
    training.end(training.nodes, f"of round {training.round} ends")


def test_a_service_that_is_started_again_does_not_begin_another_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    training = Run(tmp_path, services=2)
    wait_for("the copy", training.copies(1))
    kill_tree(training.nodes[0])
    wait_for("a standby that has lost it", lambda: "makes this one lead" in training.said(1))
    training.nodes[0] = training.start(0)
    wait_for("the service of node 0", lambda: "has no copy of the run's journal" in training.promote(0).stderr)
    assert training.promote(1).returncode == 0
    wait_for("the copy", lambda: f"stands by with a copy: the service at 127.0.0.1:{training.ports[1]} leads" in training.said(0))
    wait_for("a round of three nodes", lambda: training.round_of(3))
    training.end(training.nodes, "ends")


def test_the_flag_says_what_it_needs():
    command = [BIN / "ddprun", "--nnodes", "2", "--standby-nodes", "1"]
    done = run([*command, "--rdzv-endpoint", "a:29400", "--rdzv-id", "job7", "true"])
    assert done.returncode == 2 and "--standby-nodes 1 needs --rdzv-id, and --rdzv-endpoint with 2 machines" in done.stderr
    done = run([*command, "--rdzv-endpoint", "a,b", "--rdzv-id", "job7", "--journal", "etcd://e:2379", "true"])
    assert done.returncode == 2 and "--standby-nodes and --journal contradict each other" in done.stderr
    done = run([BIN / "ddpctl", "promote"], env=clean_environment())
    assert done.returncode == 2 and "promote needs HOST[:PORT]" in done.stderr


def test_nodes_of_one_machine_may_start_at_the_same_moment():
    """Both find the first port free, and one of them gets it."""
    for _ in range(4):
        endpoint = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
        flags = ["--nnodes", "2", "--rdzv-endpoint", endpoint, "--rdzv-id", "run", "--standby-nodes", "1"]
        nodes = [start([BIN / "ddprun", *flags, "sh", "-c", "echo rank $RANK"]) for _ in range(2)]
        ends = finish_all(nodes)
        assert sorted(out[-7:] for _, out, _ in ends) == ["rank 0\n", "rank 1\n"] and not any(code for code, _, _ in ends), ends
