# SPDX-License-Identifier: Apache-2.0
"""Services on hosts of their own, which are cut off while one of them leads: with all that it reaches, or from the nodes alone. The run
goes on with another service, in the same processes and the same round."""

import json
import subprocess

import pytest
from conftest import BIN, clean_environment, finish_all, free_port, run, start, wait_for
from etcd_cluster import VERSIONS, Etcd
from hosts import three_hosts  # noqa: F401  (a fixture)
from packet_filter import DropPackets
from process_tree import is_alive

pytestmark = pytest.mark.skipif(VERSIONS["3.4"] is None, reason="needs etcd")

WORKER = ["sh", "-c", "echo $$ > pid.$RANK; while [ ! -e end ]; do sleep 0.1; done; echo ends in round $DDPRUN_ROUND"]


class Cluster:
    """etcd and two nodes on the first host, and a service on each; the second host's leads."""

    def __init__(self, hosts, folder, etcd, numbers=(1, 0, 2)):
        self.hosts, self.folder, self.etcd, self.port = hosts, folder, etcd, free_port()
        self.endpoint = ",".join(f"{host.address}:{self.port}" for host in (hosts[number] for number in sorted(numbers)))
        self.services = {}
        for number in numbers:
            self.serve(number)
        node = [*hosts[0].prefix, BIN / "ddprun", "--nnodes", "2", "--rdzv-endpoint", self.endpoint, "--rdzv-id", "run", "--insecure"]
        node += ["--rdzv-conf", "is_host=false", "--nproc-per-node", "1", *WORKER]
        self.nodes = [start(node, cwd=folder) for _ in range(2)]
        files = [folder / f"pid.{rank}" for rank in (0, 1)]
        self.pids = [int(wait_for("the workers", lambda file=file: file.exists() and file.read_text())) for file in files]
        self.goes_on()

    def serve(self, number):
        host = self.hosts[number]
        command = [*host.prefix, BIN / "ddprun-rendezvous", "--host", host.address, "--port", self.port, "--insecure", "--standby"]
        command += ["--journal", self.etcd.place()]
        with open(self.folder / f"service{number}.log", "wb") as log:
            self.services[number] = subprocess.Popen(
                [str(word) for word in command], env=clean_environment(), stdout=log, stderr=subprocess.STDOUT
            )
        wait_for("it leads or stands by", lambda: self.says(number, "leads"))

    def says(self, number, words):
        lines = (self.folder / f"service{number}.log").read_text().splitlines()
        return bool(lines) and words in lines[-1]

    def goes_on(self):
        def both_run():
            status = [BIN / "ddpctl", "status", "--rdzv-endpoint", self.endpoint, "--rdzv-id", "run", "--insecure", "--json"]
            done = run([*self.hosts[0].prefix, *status])
            found = json.loads(done.stdout)["runs"][0] if done.returncode == 0 else {"nodes": []}
            return sum(node["state"] == "running" for node in found["nodes"]) == 2 and found["round"] == 1

        wait_for("both nodes", both_run)
        assert all(is_alive(pid) for pid in self.pids)

    def end(self):
        (self.folder / "end").touch()
        for code, out, err in finish_all(self.nodes):
            assert code == 0 and "ends in round 1" in out, (code, out, err)

    def close(self):
        for process in self.services.values():
            process.terminate()
        for process in self.services.values():
            process.wait(timeout=30)


@pytest.fixture
def cluster(three_hosts, tmp_path):  # noqa: F811
    folder = tmp_path / "etcd"
    folder.mkdir()
    with Etcd(folder, VERSIONS["3.4"], host=three_hosts[0]) as etcd:
        made = Cluster(three_hosts, tmp_path, etcd)
        try:
            assert made.says(1, "leads") and not made.says(1, "stands by")
            yield made
        finally:
            made.close()


def another_leads(cluster):
    return any(cluster.says(number, "leads") and not cluster.says(number, "stands by") for number in (0, 2))


def test_the_leaders_machine_is_cut_off(cluster):
    switch = cluster.hosts[0]
    switch.run("ip", "link", "set", "port1", "down")
    wait_for("another leader", lambda: another_leads(cluster))
    cluster.goes_on()
    switch.run("ip", "link", "set", "port1", "up")
    wait_for("the old one stands by", lambda: cluster.says(1, "stands by"))
    cluster.goes_on()
    cluster.end()


def test_the_nodes_do_not_reach_the_leader_which_reaches_etcd(cluster):
    """It is replaced: who asks another service is its proof."""
    with DropPackets(cluster.hosts[1], open_ports=cluster.etcd.clients):
        wait_for("another leader", lambda: another_leads(cluster))
        cluster.goes_on()
        wait_for("the old one stands by", lambda: cluster.says(1, "stands by"))
    cluster.end()


def test_a_service_that_is_cut_off_from_etcd_alone_follows_later(cluster):
    """One that stands by: nobody notices."""
    cluster.hosts[0].run("ip", "link", "set", "port2", "down")
    wait_for("it notices", lambda: cluster.says(2, "has not answered"))
    cluster.goes_on()
    cluster.hosts[0].run("ip", "link", "set", "port2", "up")
    wait_for("it stands by", lambda: cluster.says(2, "stands by"))
    cluster.end()
