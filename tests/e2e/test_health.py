# SPDX-License-Identifier: Apache-2.0
"""--health-check: a node that is unfit does not join, and leaves between two rounds."""

import re
import shlex

from conftest import DDPRUN, clean_environment, finish_all, free_port, processes_of_this_session, run, start, wait_for

DONE = ["sh", "-c", "echo rank $RANK of $WORLD_SIZE round $DDPRUN_ROUND"]


def test_a_node_joins_once_its_check_passes(tmp_path):
    repaired, log = tmp_path / "repaired", tmp_path / "log"
    check = f"echo asked >> {log}; test -e {repaired} && exit; echo detail; echo no GPU; exit 3"
    process = start([DDPRUN, "--health-check", check, *DONE])
    line = process.stderr.readline()
    assert "this node stands aside: its health check exited with code 3: no GPU; it joins once the check passes" in line
    repaired.touch()
    code, out, err = finish_all([process])[0]
    assert (code, out) == (0, "[0] rank 0 of 1 round 1\n"), err
    assert err == "ddprun: the health check passes now\n"
    assert log.read_text() == "asked\n" * 2


def test_a_node_that_stays_unfit_ends_with_the_reason():
    result = run([DDPRUN, "--join-timeout", "1", "--health-check", "echo no GPU >&2; exit 3", *DONE])
    assert result.returncode == 1 and result.stdout == "", result
    assert "has not joined: its health check exited with code 3: no GPU; repair it" in result.stderr, result


def test_a_check_that_hangs_has_failed_and_is_killed():
    flags = ["--join-timeout", "0.5", "--health-check-timeout", "0.5", "--health-check", "echo at GPU 3; sleep 4713"]
    result = run([DDPRUN, *flags, *DONE])
    assert result.returncode == 1, result
    assert "did not end within 0.5 s (--health-check-timeout): at GPU 3" in result.stderr, result
    wait_for("the end of the check", lambda: not [one for one in processes_of_this_session() if "sleep 4713" in one[1]])


def test_a_node_without_a_failure_is_silent():
    result = run([DDPRUN, "--nproc-per-node", "2", "--health-check", "head -c 1000000 /dev/zero; exit 0", "true"])
    assert (result.returncode, result.stdout, result.stderr) == (0, "", ""), result


def run_with_a_bad_node(tmp_path, hosts, spare):
    """Node 1's worker fails and makes its node unfit; returns the results of node 0, node 1 and the spare."""
    bad, ready = tmp_path / "bad", tmp_path / "ready"
    check = f'test "$NODE" = {hosts} && test -e {bad} || exit 0; echo Xid 79 on GPU 3; exit 1'
    script = f'if test $RANK = 1 -a $DDPRUN_ROUND = 1; then until test -e {ready}; do sleep 0.02; done; touch {bad}; exit 9; fi; '
    script += 'test $DDPRUN_ROUND = 2 || exec sleep 60; echo "round 2 rank $RANK node $NODE"'
    port = free_port()
    common = [DDPRUN, "--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "h", "--max-restarts", "1"]
    common += ["--health-check", check, "--rdzv-conf"]
    processes = []
    for node in range(3 if spare else 2):
        env = clean_environment(NODE=str(node))
        rank = ["--node-rank", str(node)] if node < 2 else []
        processes.append(start([*common, f"is_host={int(node == 0)}", *rank, "sh", "-c", script], env=env))
        if node == 1 and spare:
            status = [DDPRUN, "status", "--rdzv-endpoint", f"127.0.0.1:{port}"]
            wait_for("round 1", lambda: ": running, round 1" in run(status).stdout)
    if spare:
        wait_for("the spare", lambda: re.search(r"\bspare\b", run(status).stdout))
    ready.touch()
    return finish_all(processes)


def test_a_spare_takes_the_place_of_an_unfit_node(tmp_path):
    first, bad, spare = run_with_a_bad_node(tmp_path, 1, True)
    assert (first[0], bad[0], spare[0]) == (0, 1, 0), (first, bad, spare)
    assert "this node has left the run" in bad[2] and "exited with code 1: Xid 79 on GPU 3" in bad[2], bad
    assert "round 2 rank 1 node 2" in spare[1] and "round 2 rank 0 node 0" in first[1], (first, spare)
    # The first cause stays the worker's failure, and who is left out is told of.
    note = next(line for line in first[2].splitlines() if "restart 1 of 1 as round 2" in line)
    assert "exited with code 9" in note and "Xid 79 on GPU 3" in note, note


def test_the_run_ends_with_the_reason_where_the_node_hosts_it(tmp_path):
    first, other = run_with_a_bad_node(tmp_path, 0, False)
    assert first[0] != 0 and other[0] != 0, (first, other)
    assert "Xid 79 on GPU 3" in first[2], first


def test_the_check_is_quoted_for_hosts(tmp_path):
    rsh = tmp_path / "here"
    rsh.write_text('#!/bin/sh\nshift\nexec sh -c "exec $*"\n')
    rsh.chmod(0o755)
    asked = tmp_path / "it's asked"
    check = f"echo x >> {shlex.quote(str(asked))}"
    words = ["-H", "n1,n2", "--rsh", rsh, "--master-addr", "127.0.0.1", "--health-check", check, "true"]
    result = run([DDPRUN, *words])
    assert result.returncode == 0 and asked.read_text() == "x\n" * 2, result
