# SPDX-License-Identifier: Apache-2.0
"""Under a real Slurm: every task a node (`srun ddprun`), and one ddprun that starts them all (`ddprun --srun`)."""

import os
import pathlib
import re
import signal
import time

import pytest
from conftest import DDPRUN, clean_environment, finish_all, run, start
from slurm_cluster import DAEMONS, slurm  # noqa: F401  (a fixture)

SHOW = 'echo "rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME group $GROUP_RANK"'


def environment(slurm):  # noqa: F811
    return clean_environment(**slurm.environment)


def allocate(*command):
    return [DAEMONS["salloc"], "-Q", "--nodes=2", "--ntasks=2", *command]


def mine():
    """What of the run is alive: workers by the session's mark, ddprun by its name."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if "ddprun --control-pipe" in command or "sleep 4711" in command:
                if os.readlink(entry / "exe") == DDPRUN or "sleep 4711" in command:
                    found.append((entry.name, command))
        except OSError:
            pass
    return found


def wait_until_gone(timeout):
    deadline = time.monotonic() + timeout
    while left := mine():
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


def test_tasks_of_a_step_find_each_other(slurm):  # noqa: F811
    """On a cluster the name of the first host would do; n1 is no name of this machine."""
    result = run(
        [DAEMONS["srun"], "-Q", "--nodes=2", "--ntasks=2", DDPRUN, "--nnodes", "2", "--master-addr", "127.0.0.1"]
        + ["sh", "-c", SHOW],
        env=environment(slurm),
    )
    assert result.returncode == 0, result
    ranks = re.findall(r"rank (\d) of 2 on (n\d) group (\d)", result.stdout)
    assert sorted(ranks) == [("0", "n1", "0"), ("1", "n2", "1")], result


def test_several_tasks_of_one_host_are_one_run(slurm):  # noqa: F811
    """torchrun would make two worlds of one."""
    result = run(
        [DAEMONS["srun"], "-Q", "--nodes=1", "--ntasks=2", "--nodelist=n1", DDPRUN, "--master-addr", "127.0.0.1"]
        + ["sh", "-c", SHOW],
        env=environment(slurm),
    )
    assert result.returncode == 0, result
    assert sorted(re.findall(r"rank (\d) of 2 on n1 group (\d)", result.stdout)) == [("0", "0"), ("1", "1")], result


def test_one_command_starts_all_nodes_of_the_allocation(slurm):  # noqa: F811
    result = run(
        allocate(DDPRUN, "--srun", "--master-addr", "127.0.0.1", "--nproc-per-node", "2", "sh", "-c", SHOW),
        env=environment(slurm),
    )
    assert result.returncode == 0, result
    ranks = re.findall(r"^\[(n\d):(\d)\] rank (\d) of 4 on (n\d) group (\d)$", result.stdout, re.MULTILINE)
    assert sorted(ranks) == [(f"n{n + 1}", str(r), str(r), f"n{n + 1}", str(n)) for r, n in enumerate((0, 0, 1, 1))], result


def test_the_verdict_comes_once_and_with_the_causes_code(slurm):  # noqa: F811
    script = 'test "$RANK" = 1 && exit 7; exec sleep 4711'
    result = run(
        allocate(DDPRUN, "--srun", "--master-addr", "127.0.0.1", "sh", "-c", script), env=environment(slurm)
    )
    assert result.returncode == 7, result
    assert result.stderr.count("run failed") == 1 and "rank 1 (local rank 0 on host n2" in result.stderr, result
    wait_until_gone(10)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_alive_after_the_head(slurm, number):  # noqa: F811
    """Also if it is killed: srun closes the nodes' stdin."""
    process = start(
        allocate(DDPRUN, "--srun", "--master-addr", "127.0.0.1", "sh", "-c", "echo running; exec sleep 4711"),
        env=environment(slurm),
    )
    for _ in range(2):
        assert "running" in process.stdout.readline()
    heads = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if words[0].decode() == DDPRUN and b"--srun" in words:
                heads.append(int(entry.name))
        except OSError:
            pass
    assert len(heads) == 1
    os.kill(heads[0], number)
    wait_until_gone(5)
    finish_all([process], 60)  # its exit code is salloc's affair


def test_without_an_allocation_it_says_so(slurm):  # noqa: F811
    result = run([DDPRUN, "--srun", "true"], env=environment(slurm))
    assert result.returncode == 2 and "run it under salloc or sbatch" in result.stderr, result
