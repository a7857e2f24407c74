# SPDX-License-Identifier: Apache-2.0
"""--health-check: a node that is unfit does not join, and leaves between two rounds. What `builtin` finds of GPUs is what
tests/testing/fake_nvml.c shows."""

import os
import re
import shlex
import time

import pytest
from conftest import BUILD, DDPRUN, clean_environment, finish_all, free_port, processes_of_this_session, run, start, wait_for

DONE = ["sh", "-c", "echo rank $RANK of $WORLD_SIZE round $DDPRUN_ROUND"]


def gpus(folder, node, *states, **more):
    """The environment of a node whose GPUs are in these states: used percent, ECC errors, repair pending, repair failed; or a word."""
    file = folder / f"nvml-{node}"
    file.write_text("".join(f"GPU-{node}{index} {state}\n" for index, state in enumerate(states)))
    return clean_environment(LD_LIBRARY_PATH=str(BUILD / "tests" / "fake_nvml"), FAKE_NVML=str(file), **more)


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


def run_with_a_bad_node(tmp_path, hosts, spare, check=None, breaks=None):
    """Node 1's worker fails and makes its node unfit; returns the results of node 0, node 1 and the spare."""
    bad, ready = tmp_path / "bad", tmp_path / "ready"
    check = check or f'test "$NODE" = {hosts} && test -e {bad} || exit 0; echo Xid 79 on GPU 3; exit 1'
    breaks = breaks or f"touch {bad}"
    script = f"if test $RANK = 1 -a $DDPRUN_ROUND = 1; then until test -e {ready}; do sleep 0.02; done; {breaks}; exit 9; fi; "
    script += 'test $DDPRUN_ROUND = 2 || exec sleep 60; echo "round 2 rank $RANK node $NODE"'
    port = free_port()
    common = [DDPRUN, "--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "h", "--max-restarts", "1"]
    common += ["--health-check", check, "--rdzv-conf"]
    processes = []
    for node in range(3 if spare else 2):
        env = gpus(tmp_path, node, "0 0 0 0", NODE=str(node))
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


# ---- --health-check builtin, which is `ddprun health`


def test_a_machine_without_gpus_is_fit():
    done = run([DDPRUN, "health"])
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout == "checking gpu\nchecking disk\nchecking clock\nchecking network\nthis node is fit\n"
    assert run([DDPRUN, "--health-check", "builtin", "true"]).returncode == 0


@pytest.mark.parametrize("command", [["health", "gpus"], ["--health-check", "builtin:gpus", "true"]])
def test_a_check_that_does_not_exist_is_named(command):
    done = run([DDPRUN, *command])
    assert done.returncode == 2 and "'gpus' is no health check; there are gpu, disk, clock, network" in done.stderr, done


@pytest.mark.parametrize(
    ("states", "says"),
    [
        (["2 0 0 0", "2 3 0 0"], "GPU 1 (GPU-01) has 3 uncorrectable ECC errors"),
        (["2 0 1 0"], "GPU 0 (GPU-00) has memory to be repaired at its next reset"),
        (["2 0 0 1"], "GPU 0 (GPU-00) has memory that could not be repaired; replace it"),
        (["2 0 0 0", "lost"], "GPU 1 does not answer (NVML: GPU is lost)"),
        (["2 0 0 0"], None),
    ],
)
def test_faults_of_gpus_are_named(tmp_path, states, says):
    done = run([DDPRUN, "health", "gpu"], env=gpus(tmp_path, 0, *states))
    assert (done.returncode, done.stderr == "") == ((0, True) if says is None else (1, False)), done
    assert says is None or done.stderr.startswith(says) and len(done.stderr.splitlines()) == 1, done
    if says is not None:  # GPUs that the run does not use may be broken
        others = gpus(tmp_path, 0, *states, "1 0 0 0", CUDA_VISIBLE_DEVICES=str(len(states)))
        assert run([DDPRUN, "health", "gpu"], env=others).returncode == 0
        assert run([DDPRUN, "health", "--gpus", str(len(states)), "gpu"], env=gpus(tmp_path, 0, *states, "1 0 0 0")).returncode == 0


def test_an_unfit_gpu_keeps_a_node_out_until_it_is_repaired(tmp_path):
    env = gpus(tmp_path, 0, "1 0 0 0", "1 2 0 0")
    process = start([DDPRUN, "--health-check", "builtin:gpu", *DONE], env=env)
    line = process.stderr.readline()
    assert "this node stands aside" in line and "GPU 1 (GPU-01) has 2 uncorrectable ECC errors" in line, line
    assert "nvidia-smi --gpu-reset -i 1" in line
    gpus(tmp_path, 0, "1 0 0 0", "1 0 0 0")
    code, out, err = finish_all([process])[0]
    assert (code, out, err) == (0, "[0] rank 0 of 1 round 1\n", "ddprun: the health check passes now\n")


def test_memory_that_is_free_a_moment_later_is_waited_for(tmp_path):
    env = gpus(tmp_path, 0, "90 0 0 0")
    process = start([DDPRUN, "health", "gpu"], env=env)
    assert process.stdout.readline() == "checking gpu\n"
    gpus(tmp_path, 0, "1 0 0 0")
    assert finish_all([process])[0][0] == 0


def test_a_spare_takes_the_place_of_a_node_whose_gpu_stays_full(tmp_path):
    """A process of the broken round holds its memory."""
    breaks = f"echo GPU-10 90 0 0 0 > {tmp_path / 'nvml-1'}"
    first, bad, spare = run_with_a_bad_node(tmp_path, 1, True, "builtin:gpu", breaks)
    reason = "GPU 0 (GPU-10) has 72 GiB of 80 GiB in use although no worker runs"
    assert (first[0], bad[0], spare[0]) == (0, 1, 0), (first, bad, spare)
    assert "this node has left the run" in bad[2] and reason in bad[2], bad
    assert "round 2 rank 1 node 2" in spare[1] and "round 2 rank 0 node 0" in first[1], (first, spare)


def test_a_driver_that_hangs_holds_nothing_up(tmp_path):
    flags = ["--join-timeout", "0.5", "--health-check-timeout", "0.5", "--health-check", "builtin"]
    (tmp_path / "nvml").write_text("hang\n")
    done = run([DDPRUN, *flags, *DONE], env={**gpus(tmp_path, 0), "FAKE_NVML": str(tmp_path / "nvml")})
    assert done.returncode == 1 and "did not end within 0.5 s (--health-check-timeout): checking gpu" in done.stderr, done
    wait_for("the end of the check", lambda: not [one for one in processes_of_this_session() if " health " in one[1]])


@pytest.mark.skipif(os.geteuid() != 0, reason="another kernel log needs root")
@pytest.mark.parametrize(("minutes", "bus", "unfit"), [(5, "3c", True), (61, "3c", False), (5, "99", False)])
def test_a_gpus_fault_in_the_kernels_log_counts_for_an_hour(tmp_path, minutes, bus, unfit):
    log = tmp_path / "kmsg"
    moment = int((time.clock_gettime(time.CLOCK_MONOTONIC) - minutes * 60) * 1e6)
    log.write_text(f"4,7,{moment},-;NVRM: Xid (PCI:0000:{bus}:00): 79, pid='<unknown>', GPU has fallen off the bus.\n")
    words = ["unshare", "--mount", "sh", "-c", f"mount --bind {log} /dev/kmsg && exec {DDPRUN} health gpu"]
    done = run(words, env=gpus(tmp_path, 0, "1 0 0 0", "1 0 0 0"))
    assert done.returncode == unfit, done
    assert not unfit or "GPU 1 (GPU-01) had Xid 79 5 minutes ago (kernel log); reset it" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="a disk of its own needs root")
def test_a_full_disk_of_the_logs_is_named(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    fill = f"mount -t tmpfs -o size=1m tmpfs {small} && head -c 1000k /dev/zero > {small}/file"
    words = f"{DDPRUN} --join-timeout 0.3 --log-dir {small}/logs --health-check builtin:disk true"
    done = run(["unshare", "--mount", "sh", "-c", f"{fill} && exec {words}"])
    assert done.returncode == 1 and f"the file system of {small}/logs has " in done.stderr and "make room" in done.stderr, done
