# SPDX-License-Identifier: Apache-2.0
"""--rank-order: which node gets which rank, with several nodes on this machine."""

import json
import re

from conftest import BIN, DDPRUN, clean_environment, finish_all, free_port, run, start, wait_for

SHOW = 'echo "rank $RANK of $WORLD_SIZE at $DDPRUN_TOPOLOGY"'


def nodes(places, *flags, program=("sh", "-c", SHOW)):
    """A node a place; the first one hosts the service."""
    common = [DDPRUN, "--nnodes", str(len(places)), "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "order", *flags]
    return [
        start(
            [*common, "--rdzv-conf", f"is_host={int(number == 0)}", *program],
            env=clean_environment(DDPRUN_TOPOLOGY=place),
        )
        for number, place in enumerate(places)
    ], common[4]


def test_nodes_of_one_switch_get_neighbouring_ranks():
    """Whoever joins first, and the first node that starts is not rank 0."""
    processes, _ = nodes(["s10.a", "s2.b", "s10.c", "s2.a"], "--rank-order", "topology")
    results = finish_all(processes)
    assert [code for code, _, _ in results] == [0] * 4, results
    found = sorted(re.findall(r"rank (\d) of 4 at (\S+)", "".join(out for _, out, _ in results)))
    assert found == [("0", "s2.a"), ("1", "s2.b"), ("2", "s10.a"), ("3", "s10.c")], results


def test_status_shows_the_order_and_the_places(tmp_path):
    go = tmp_path / "go"
    wait = f"until test -e {go}; do sleep 0.02; done"
    processes, endpoint = nodes(["s2", "s1"], "--rank-order", "topology", program=("sh", "-c", wait))
    status = [BIN / "ddpctl", "status", "--rdzv-endpoint", endpoint]

    def running():
        answer = run([*status, "--json"])
        found = json.loads(answer.stdout)["runs"] if answer.returncode == 0 else []
        return found[0] if found and found[0]["phase"] == "running" else None

    seen = wait_for("the round", running)
    text = run(status).stdout
    go.touch()
    results = finish_all(processes)
    assert [code for code, _, _ in results] == [0, 0], results
    assert seen["rank_order"] == "topology"
    assert [(node["node_rank"], node["topology"]) for node in seen["nodes"]] == [(0, "s1"), (1, "s2")]
    assert "ranks by topology" in text and "TOPOLOGY" in text, text


def test_hosts_of_a_list_are_ordered_by_their_names(tmp_path):
    rsh = tmp_path / "here"
    rsh.write_text('#!/bin/sh\nshift\nexec sh -c "exec $*"\n')  # a shell, as that of ssh
    rsh.chmod(0o755)
    words = ["-H", "n10,n9,n11", "--rsh", rsh, "--master-addr", "127.0.0.1", "sh", "-c", "echo rank $RANK"]
    listed, ordered = run([DDPRUN, *words]), run([DDPRUN, "--rank-order", "host", *words])
    assert listed.returncode == ordered.returncode == 0, (listed, ordered)
    assert "[n10:0] rank 0" in listed.stdout and "[n9:1] rank 1" in listed.stdout, listed
    assert sorted(ordered.stdout.splitlines()) == ["[n10:1] rank 1", "[n11:2] rank 2", "[n9:0] rank 0"], ordered


def test_a_file_has_the_places(tmp_path):
    file = tmp_path / "places"
    file.write_text("n[9-10] rack2\nn11 rack1\n")
    rsh = tmp_path / "here"
    rsh.write_text('#!/bin/sh\nshift\nexec sh -c "exec $*"\n')
    rsh.chmod(0o755)
    flags = ["--rank-order", "topology", "--topology-file", file, "--rsh", rsh, "--master-addr", "127.0.0.1"]
    result = run([DDPRUN, "-H", "n10,n9,n11", *flags, "sh", "-c", "echo rank $RANK"])
    assert sorted(result.stdout.splitlines()) == ["[n10:2] rank 2", "[n11:0] rank 0", "[n9:1] rank 1"], result
    result = run([DDPRUN, "-H", "n10,n8", *flags, "true"])
    assert result.returncode == 2 and "does not name host n8; add a line: n8 PLACE" in result.stderr, result


def test_nodes_with_another_order_are_refused():
    port = free_port()
    common = [DDPRUN, "--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "order", "--join-timeout", "20"]
    first = start([*common, "--rank-order", "host", "true"])
    status = [BIN / "ddpctl", "status", "--rdzv-endpoint", f"127.0.0.1:{port}"]
    wait_for("the first node", lambda: "1 node is here of 2" in run(status).stdout)
    second = run([*common, "true"])
    assert second.returncode != 0, second
    assert "was started with --rank-order join, the run has --rank-order host" in second.stderr, second
    third = run([*common, "--rank-order", "host", "true"])
    assert third.returncode == 0, third
    assert finish_all([first])[0][0] == 0
