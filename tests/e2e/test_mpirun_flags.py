# SPDX-License-Identifier: Apache-2.0
"""What users of mpirun and srun type: the number of all ranks."""

import pytest
from conftest import DDPRUN, finish_all, free_port, run, start

SAY_RANK = ["sh", "-c", "echo $RANK of $WORLD_SIZE, $LOCAL_WORLD_SIZE here"]


def lines_of(done):
    """Sorted (rank, line) pairs of the console."""
    assert done.returncode == 0, done.stderr
    return sorted((line[1], line[4:]) for line in done.stdout.splitlines())


# ---- -n, -np, -ppn


@pytest.mark.parametrize("flags", [["-n", "3"], ["-np", "3"], ["-n", "3", "-ppn", "3"], ["--npernode", "3"]])
def test_the_number_of_workers_on_one_node(flags):
    assert lines_of(run([DDPRUN, *flags, *SAY_RANK])) == [(str(r), f"{r} of 3, 3 here") for r in range(3)]


def test_two_nodes_share_the_total():
    port = free_port()
    flags = ["-np", "4", "-ppn", "2", "--master-addr", "127.0.0.1", "--master-port", port]
    nodes = [start([DDPRUN, *flags, "--node-rank", rank, *SAY_RANK]) for rank in (0, 1)]
    ends = finish_all(nodes)
    assert [code for code, _, _ in ends] == [0, 0], ends
    said = "".join(out for _, out, _ in ends)
    for rank in range(4):
        assert f"{rank} of 4, 2 here" in said


def test_hosts_are_filled_in_their_order(tmp_path):
    rsh = tmp_path / "rsh"
    rsh.write_text('#!/bin/sh\nshift\nexec "$@"\n')
    rsh.chmod(0o755)
    command = [DDPRUN, "-H", "a:2,b:2", "-n", "3", "--rsh", rsh, "--master-addr", "127.0.0.1", *SAY_RANK]
    done = run(command)
    assert done.returncode == 0, done.stderr
    assert sorted(line.split("] ")[1] for line in done.stdout.splitlines()) == [
        "0 of 3, 2 here",
        "1 of 3, 2 here",
        "2 of 3, 1 here",
    ]


def test_contradicting_numbers_are_one_sentence():
    done = run([DDPRUN, "-n", "6", "-ppn", "4", "true"])
    assert done.returncode == 2
    assert done.stderr == (
        "ddprun: -n 6 is no multiple of --nproc-per-node 4, which is the number on each node; change one of them, or "
        "leave the second one out\n"
    )
    done = run([DDPRUN, "-H", "a:2,b:2", "-n", "5", "true"])
    assert done.returncode == 2
    assert done.stderr.startswith("ddprun: -n 5 is more than the 4 slots of 2 hosts; ")
