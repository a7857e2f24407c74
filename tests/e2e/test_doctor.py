# SPDX-License-Identifier: Apache-2.0
"""`ddprun doctor` between real network namespaces: each fault that is made on purpose is named, with its node."""

import json
import os
import stat
import subprocess
import sys
import time

from conftest import BIN, DDPRUN, clean_environment, finish_all, run, start
from hosts import three_hosts, two_hosts  # noqa: F401  (fixtures)
from ssh_hosts import ssh_hosts  # noqa: F401  (a fixture)

DDPCTL = str(BIN / "ddpctl")
# What the machine that runs the tests may have of its own: limits, and other work beside the probe of the links.
OF_THE_MACHINE = ("memory", "shm", "stacks", "kernel", "processes", "nofile", "memlock", "gpu", "bandwidth")


def flags(nodes, rank, *more, master="10.77.0.1"):
    return ["--nnodes", nodes, "--node-rank", rank, "--master-addr", master, *more]


def examine(hosts, *more, before=([], [], []), envs=None, master="10.77.0.1", program=()):
    """Runs it on all hosts at once with --json; ([exit code of each], what they say), which is the same on all."""

    def begin(rank, host):
        call = ["doctor", *flags(len(hosts), rank, "--json", *more, master=master)]
        ending = ["--", *program] if program else []
        return start([*host.prefix, *before[rank], DDPRUN, *call, *ending], env=envs[rank] if envs else None)

    results = finish_all([begin(rank, host) for rank, host in enumerate(hosts)])
    assert len({out for _, out, _ in results}) == 1, results
    return [code for code, _, _ in results], json.loads(results[0][1])


def complaints(report, check=None):
    return [
        (found["check"], found["verdict"], found["nodes"], found["text"])
        for found in report["findings"]
        if found["verdict"] != "ok"
        and (found["check"] == check or (check is None and found["check"] not in OF_THE_MACHINE))
    ]


def only_complaint(report, check):
    found = complaints(report, check)
    assert len(found) == 1, report
    return found[0]


def text_of(report, check):
    return [found["text"] for found in report["findings"] if found["check"] == check]


def test_one_machine_without_flags():
    result = run([DDPRUN, "doctor"])
    assert "\nshm " in result.stdout and result.stderr == "", result
    assert run([DDPCTL, "doctor", "--json"]).stdout == run([DDPRUN, "doctor", "--json"]).stdout
    assert run([DDPCTL, "doctor", "--json", "--nnodes", "x"]).returncode == 2


def test_sound_nodes_agree_and_all_is_measured(two_hosts):  # noqa: F811
    codes, report = examine(two_hosts, program=("true",))
    assert codes == [0, 0] and complaints(report) == [], report
    assert text_of(report, "nodes") == ["all 2 came"]
    assert text_of(report, "address") == [
        "eth0 leads to the others; workers get NCCL_SOCKET_IFNAME==eth0, GLOO_SOCKET_IFNAME=eth0"
    ]
    ends = [(node["address"], node["interface"]) for node in report["nodes"]]
    assert ends == [("10.77.0.1", "eth0"), ("10.77.0.2", "eth0")]
    assert [(pair["from"], pair["to"]) for pair in report["pairs"]] == [(0, 1), (1, 0)]
    for pair in report["pairs"]:
        assert 0 < pair["round_trip_seconds"] < 1 and pair["bytes_per_second"] > 1e6, pair
        # One machine has one clock.
        assert abs(pair["clock_ahead_seconds"]) <= pair["clock_uncertainty_seconds"] + 1e-3, pair


def test_nodes_that_meet_over_ipv6(two_hosts):  # noqa: F811
    for number, host in enumerate(two_hosts):
        host.run("ip", "address", "add", f"fd00:77::{number + 1}/64", "dev", "eth0", "nodad")
    codes, report = examine(two_hosts, master="fd00:77::1")
    assert codes == [0, 0] and complaints(report) == [], report
    assert text_of(report, "address")[0].endswith("(IPv6)")
    assert [node["address"] for node in report["nodes"]] == ["fd00:77::1", "fd00:77::2"]
    assert all(pair["error"] is None for pair in report["pairs"]) and len(report["pairs"]) == 2


def test_the_table_is_the_same_on_all_nodes_and_fits_a_screen(two_hosts):  # noqa: F811
    results = finish_all(
        # A long path of the working folder is one word.
        [start([*host.prefix, DDPRUN, "doctor", *flags(2, rank)], cwd="/") for rank, host in enumerate(two_hosts)]
    )
    assert results[0][1] == results[1][1], results
    lines = results[0][1].splitlines()
    assert max(len(line) for line in lines) <= 80, results[0][1]
    assert lines[0].startswith("  node 0  ") and lines[0].endswith("10.77.0.1 on eth0"), lines


def test_packets_of_two_sizes(two_hosts):  # noqa: F811
    two_hosts[1].run("ip", "link", "set", "eth0", "mtu", "1400")
    codes, report = examine(two_hosts)
    check, verdict, nodes, text = only_complaint(report, "mtu")
    assert (codes, verdict, nodes) == ([0, 0], "warn", [0, 1])
    assert "1400 on node 1, 1500 on node 0" in text


def test_a_way_that_is_shut_is_named_by_both_ends(three_hosts):  # noqa: F811
    """All three reach the service, and two of them do not reach each other."""
    three_hosts[1].run("ip", "route", "add", "unreachable", "10.78.0.3/32")
    codes, report = examine(three_hosts, master="10.78.0.1")
    assert codes == [1, 1, 1], report
    found = complaints(report, "connections")
    assert [(verdict, nodes) for _, verdict, nodes, _ in found] == [("fail", [1]), ("fail", [2])], found
    assert "no way to node 2: No route to host" in found[0][3]
    assert "no way to node 1: no answer, as where a firewall drops packets" in found[1][3]
    works = {(pair["from"], pair["to"]) for pair in report["pairs"] if pair["error"] is None}
    assert works == {(0, 1), (1, 0), (0, 2), (2, 0)}


def test_a_variable_that_differs(two_hosts):  # noqa: F811
    envs = [clean_environment(NCCL_DEBUG="INFO", MY_SECRET="one"), clean_environment(MY_SECRET="two")]
    codes, report = examine(two_hosts, envs=envs)
    check, verdict, nodes, text = only_complaint(report, "environment")
    assert (codes, verdict) == ([0, 0], "warn")
    assert "NCCL_DEBUG differs: INFO on node 0, not set on node 1" in text
    assert "also differ: MY_SECRET" in text_of(report, "environment")
    assert '"one"' not in json.dumps(report)


def test_an_interface_that_is_not_there(two_hosts):  # noqa: F811
    envs = [clean_environment(), clean_environment(GLOO_SOCKET_IFNAME="eth7")]
    codes, report = examine(two_hosts, envs=envs)
    check, verdict, nodes, text = only_complaint(report, "address")
    assert (codes, verdict, nodes) == ([1, 1], "fail", [1])
    assert "GLOO_SOCKET_IFNAME=eth7 is no interface that is up here" in text


def test_limits_of_one_node(two_hosts):  # noqa: F811
    small = "mount -t tmpfs -o size=16m tmpfs /dev/shm && ulimit -n 256 && exec \"$@\""
    before = ([], ["unshare", "--mount", "sh", "-c", small, "sh"])
    codes, report = examine(two_hosts, before=before)
    assert codes == [1, 1]
    check, verdict, nodes, text = only_complaint(report, "nofile")
    assert (verdict, nodes) == ("warn", [1]) and "256 files" in text
    check, verdict, nodes, text = [found for found in complaints(report, "shm") if found[1] == "fail"][0]
    assert nodes == [1] and "16 MiB free of 16 MiB" in text and "--shm-size" in text


def test_a_program_that_is_not_the_same_file(two_hosts, tmp_path):  # noqa: F811
    program = tmp_path / "job"
    for number in (0, 1):
        other = tmp_path / f"job{number}"
        other.write_text(f"#!/bin/sh\necho {number}\n")
        other.chmod(0o755)
    program.write_text("")
    bind = f'mount --bind "{tmp_path}/job$0" {program} && exec "$@"'
    before = [["unshare", "--mount", "sh", "-c", bind, str(number)] for number in (0, 1)]
    codes, report = examine(two_hosts, before=before, program=(program,))
    check, verdict, nodes, text = only_complaint(report, "program")
    assert (codes, verdict) == ([1, 1], "fail") and "is another file on node 0, on node 1" in text
    codes, report = examine(two_hosts, program=("no-such-program",))
    check, verdict, nodes, text = only_complaint(report, "program")
    assert (codes, verdict, nodes) == ([1, 1], "fail", [0, 1]) and "no-such-program" in text


def test_a_node_that_does_not_come_is_named_and_the_rest_is_shown(three_hosts):  # noqa: F811
    results = finish_all(
        [
            start(
                [*three_hosts[rank].prefix, DDPRUN, "doctor"]
                + flags(3, rank, "--json", "--timeout", "2", master="10.78.0.1")
            )
            for rank in (0, 2)
        ]
    )
    assert results[0][1] == results[1][1]
    report = json.loads(results[0][1])
    check, verdict, nodes, text = only_complaint(report, "nodes")
    assert [code for code, _, _ in results] == [1, 1] and "node 1 of 3 did not come within 2 s" in text
    assert {(pair["from"], pair["to"]) for pair in report["pairs"]} == {(0, 2), (2, 0)}
    assert text_of(report, "clock") and text_of(report, "nofile")


def test_without_node_0_each_node_still_looks_at_itself(two_hosts):  # noqa: F811
    result = run([*two_hosts[1].prefix, DDPRUN, "doctor", *flags(2, 1, "--json", "--timeout", "2")])
    report = json.loads(result.stdout)
    check, verdict, nodes, text = only_complaint(report, "nodes")
    assert result.returncode == 1 and "10.77.0.1:29500 was not reached within 2 s" in text
    assert report["nodes"][0]["node"] == 1 and text_of(report, "nofile")
    assert "connection refused" in result.stderr, result  # said while it waited


def test_another_secret(two_hosts):  # noqa: F811
    processes = [
        start(
            [*host.prefix, DDPRUN, "doctor", *flags(2, rank, "--json", "--timeout", "3")],
            env=clean_environment(DDPRUN_TOKEN=os.urandom(32).hex()),
        )
        for rank, host in enumerate(two_hosts)
    ]
    first, second = finish_all(processes)
    assert (first[0], second[0]) == (1, 1)
    assert "node 1 of 2 did not come" in only_complaint(json.loads(first[1]), "nodes")[3]
    text = only_complaint(json.loads(second[1]), "nodes")[3]
    assert "secret" in text or "token" in text, text


def test_a_secret_that_others_can_read(two_hosts, tmp_path):  # noqa: F811
    file = tmp_path / "token"
    file.write_text(os.urandom(32).hex())
    file.chmod(0o644)
    env = clean_environment()
    del env["DDPRUN_TOKEN"]
    result = run([*two_hosts[0].prefix, DDPRUN, "doctor", *flags(2, 0, "--json", "--token-file", file)], env=env)
    report = json.loads(result.stdout)
    check, verdict, nodes, text = only_complaint(report, "secret")
    assert (result.returncode, verdict, nodes) == (1, "fail", [0]) and "chmod" in text, report
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_a_port_that_another_program_has(two_hosts):  # noqa: F811
    listen = (
        "import socket, sys; s = socket.socket(); s.bind(('10.77.0.1', 29500)); s.listen(); print('ready', flush=True);"
        "sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [*two_hosts[0].prefix, "python3", "-c", listen], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "ready\n"
        result = run([*two_hosts[0].prefix, DDPRUN, "doctor", *flags(2, 0, "--json", "--timeout", "2")])
        check, verdict, nodes, text = only_complaint(json.loads(result.stdout), "port")
        assert (result.returncode, verdict, nodes) == (1, "fail", [0]), result
        assert f"29500 is in use by python3 (pid {holder.pid})" in text
    finally:
        holder.stdin.close()
        holder.wait(timeout=30)


def test_a_run_that_is_going_on_is_found_and_left_as_it_is(two_hosts):  # noqa: F811
    program = ["sh", "-c", "echo ran $RANK"]
    first = start([*two_hosts[0].prefix, DDPRUN, *flags(2, 0), *program])
    assert "waiting for 1 of 2 nodes" in first.stderr.readline()
    codes, report = examine(two_hosts)
    check, verdict, nodes, text = only_complaint(report, "port")
    assert (codes, verdict, nodes) == ([1, 1], "fail", [0]) and "29500 is in use by ddprun (pid" in text
    assert len(report["pairs"]) == 2 and complaints(report, "connections") == []
    second = start([*two_hosts[1].prefix, DDPRUN, *flags(2, 1), *program])
    results = finish_all([first, second])
    assert [(code, out.split("] ")[1]) for code, out, _ in results] == [(0, "ran 0\n"), (0, "ran 1\n")], results


def test_nodes_above_the_least_number_are_looked_at_too(three_hosts):  # noqa: F811
    results = finish_all(
        [
            start([*host.prefix, DDPRUN, "doctor", "--nnodes", "1:3", "--rdzv-endpoint", "10.78.0.1:29500", "--json"])
            for host in three_hosts
        ]
    )
    report = json.loads(results[0][1])
    assert [code for code, _, _ in results] == [0, 0, 0] and complaints(report) == [], results
    assert text_of(report, "nodes") == ["all 3 came"] and len(report["pairs"]) == 6


def test_what_a_python_has_installed(two_hosts):  # noqa: F811
    codes, report = examine(two_hosts, "--python", sys.executable)
    assert codes == [0, 0] and complaints(report) == [], report
    version = ".".join(str(number) for number in sys.version_info[:3])
    assert f"python {version}" in text_of(report, "python")
    assert [text for text in text_of(report, "python") if text.startswith("torch ")], report
    codes, report = examine(two_hosts, "--python", "/no/such/python")
    assert "no answer of /no/such/python" in text_of(report, "python")[0]


def test_a_service_that_runs_by_itself_is_used_and_left_as_it_was(two_hosts):  # noqa: F811
    service = start([*two_hosts[0].prefix, BIN / "ddprun-rendezvous", "--host", "10.77.0.1", "--port", "29400"])
    endpoint = ["--rdzv-endpoint", "10.77.0.1:29400"]
    try:
        deadline = time.monotonic() + 60
        while run([*two_hosts[0].prefix, DDPCTL, "status", *endpoint]).returncode != 0:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for _ in range(2):  # the same name again: nothing of the first is in the way
            results = finish_all(
                [
                    start([*host.prefix, DDPRUN, "doctor", "--nnodes", "2", *endpoint, "--rdzv-id", "job", "--json"])
                    for host in two_hosts
                ]
            )
            assert [code for code, _, _ in results] == [0, 0], results
            report = json.loads(results[0][1])
            assert complaints(report) == [] and len(report["pairs"]) == 2, report
        status = run([*two_hosts[0].prefix, DDPCTL, "status", *endpoint])
        assert "job:" not in status.stdout.replace("doctor-job", ""), status
    finally:
        service.terminate()
        service.communicate(timeout=30)


def test_one_command_for_all_hosts(ssh_hosts):  # noqa: F811
    env = clean_environment()
    env["PATH"] = f"{ssh_hosts.path}:{env['PATH']}"
    result = run([*ssh_hosts.hosts[0].prefix, DDPRUN, "doctor", "-H", "10.78.0.2,10.78.0.3", "--json"], env=env)
    assert result.returncode == 0 and result.stderr == "", result
    report = json.loads(result.stdout)
    assert complaints(report) == [] and [node["host"] for node in report["nodes"]] == ["10.78.0.2", "10.78.0.3"]
    result = run([*ssh_hosts.hosts[0].prefix, DDPRUN, "doctor", "-H", "10.78.0.2,10.78.0.9", "--json"], env=env)
    assert result.returncode == 1 and "10.78.0.9" in result.stderr, result
    assert "1 of 2 hosts take no part" in only_complaint(json.loads(result.stdout), "nodes")[3]


def test_it_ends_with_its_head(ssh_hosts):  # noqa: F811
    """A node of it that waits for another one goes when the head goes."""
    env = clean_environment()
    env["PATH"] = f"{ssh_hosts.path}:{env['PATH']}"
    nobody = ["--rdzv-endpoint", "10.78.0.2:29477", "--rdzv-conf", "is_host=false", "--timeout", "100"]
    head = start([*ssh_hosts.hosts[0].prefix, DDPRUN, "doctor", "-H", "10.78.0.2,10.78.0.3", *nobody], env=env)
    line = head.stderr.readline()
    assert "node 0 is not reached at 10.78.0.2:29477" in line, line
    begin = time.monotonic()
    head.terminate()
    head.communicate(timeout=60)
    assert time.monotonic() - begin < 50, "it waited for its time to be over"
