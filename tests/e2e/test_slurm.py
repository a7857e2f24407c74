# SPDX-License-Identifier: Apache-2.0
"""Under a real Slurm: every task a node (`srun ddprun`), and one ddprun that starts them all (`ddprun --srun`)."""

import os
import pathlib
import re
import signal
import time

import pytest
from conftest import DDPRUN, clean_environment, finish_all, run, start, wait_for
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


def test_gpus_that_slurm_gave_and_that_are_not_there_end_the_run():
    """A driver that is not loaded would otherwise be seen by the time that training takes on the CPU."""
    result = run([DDPRUN, "true"], env=clean_environment(SLURM_GPUS_ON_NODE="2"))
    if pathlib.Path("/dev/nvidia0").exists() or pathlib.Path("/dev/kfd").exists():
        assert result.returncode == 0, result
        return
    assert result.returncode == 1, result
    assert "Slurm gave this job 2 GPUs on this node (SLURM_GPUS_ON_NODE), and no device is visible here" in result.stderr, result
    result = run([DDPRUN, "true"], env=clean_environment(SLURM_GPUS_ON_NODE="2", CUDA_VISIBLE_DEVICES=""))
    assert result.returncode == 0, result


def test_two_steps_of_one_job_at_once(slurm):  # noqa: F811
    """Each is a run of its own, with a port of its own."""
    show = 'echo "$TORCHELASTIC_RUN_ID rank $RANK of $WORLD_SIZE"; sleep 1'
    step = f"{DAEMONS['srun']} -Q --overlap {DDPRUN} --nnodes 2 --master-addr 127.0.0.1 sh -c '{show}'"
    result = run(allocate("sh", "-c", f"{step} & {step}; code=$?; wait $! && exit $code"), env=environment(slurm))
    assert result.returncode == 0, result
    runs = re.findall(r"slurm-(\d+\.\d) rank (\d) of 2", result.stdout)
    assert len(runs) == 4 and len({name for name, _ in runs}) == 2 and len(set(runs)) == 4, result


def test_the_components_of_a_heterogeneous_job_are_one_run(slurm):  # noqa: F811
    both = ["--nodes=1", "--ntasks=1", ":", "--nodes=1", "--ntasks=1"]
    salloc = [DAEMONS["salloc"], "-Q", *both]
    step = [DAEMONS["srun"], "-Q", "--het-group=0,1", DDPRUN, "--master-addr", "127.0.0.1", "sh", "-c", SHOW]
    result = run([*salloc, *step], env=environment(slurm))
    assert result.returncode == 0, result
    ranks = re.findall(r"rank (\d) of 2 on (n\d) group (\d)", result.stdout)
    assert sorted(ranks) == [("0", "n1", "0"), ("1", "n2", "1")], result
    result = run([*salloc, DDPRUN, "--srun", "true"], env=environment(slurm))
    assert result.returncode == 2 and "give srun --het-group=0-1" in result.stderr, result


def test_each_element_of_an_array_is_a_run_of_its_own(slurm, tmp_path):  # noqa: F811
    """Both at once on one node, with the same command line."""
    script = tmp_path / "job"
    show = 'echo "$TORCHELASTIC_RUN_ID rank $RANK of $WORLD_SIZE" >> "$OUT/lines"'
    step = f"{DAEMONS['srun']} -Q --overcommit --ntasks=2 {DDPRUN} --master-addr 127.0.0.1 sh -c '{show}'"
    script.write_text(f"#!/bin/sh\nexport OUT={tmp_path}\n{step} && echo done >> $OUT/ends\n")
    words = ["--array=3,5", "--nodes=1", "--ntasks=1", "--oversubscribe", "--mem=0", f"--output={tmp_path}/log.%a"]
    sent = run([DAEMONS["sbatch"], "--parsable", *words, script], env=environment(slurm))
    assert sent.returncode == 0, sent
    ends = tmp_path / "ends"
    logs = lambda: [path.read_text() for path in tmp_path.glob("log.*")]  # noqa: E731
    wait_for(f"the ends of both: {logs()}", lambda: ends.exists() and ends.read_text() == "done\n" * 2)
    job = sent.stdout.strip()
    expected = sorted(f"slurm-{job}_{task}.0 rank {rank} of 2" for task in (3, 5) for rank in (0, 1))
    assert sorted((tmp_path / "lines").read_text().splitlines()) == expected, logs()


def test_the_comment_of_the_job_says_how_far_it_is(slurm, tmp_path):  # noqa: F811
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "scontrol").symlink_to(DAEMONS["scontrol"])
    go = tmp_path / "go"
    env = environment(slurm) | {"PATH": f"{bin_folder}:{os.environ['PATH']}"}
    flags = ["--srun", "--slurm-comment", "--max-restarts", "3", "--master-addr", "127.0.0.1"]
    process = start(allocate(DDPRUN, *flags, "sh", "-c", f"until test -e {go}; do sleep 0.05; done"), env=env)
    jobs = [DAEMONS["scontrol"], "show", "job"]
    wanted = "Comment=ddprun round 1: 2 ranks on 2 nodes, 0 of 3 restarts used"
    wait_for("the comment", lambda: wanted in run(jobs, env=env).stdout)
    go.touch()
    code, _, err = finish_all([process], 60)[0]
    assert (code, err) == (0, ""), err


def test_a_comment_that_slurm_does_not_take_is_told_once(tmp_path):
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho Invalid job id >&2\nexit 1\n")
    (tmp_path / "scontrol").chmod(0o755)
    env = clean_environment(SLURM_JOB_ID="17", PATH=f"{tmp_path}:{os.environ['PATH']}")
    process = start([DDPRUN, "--slurm-comment", "sleep", "60"], env=env)
    line = process.stderr.readline()
    assert "scontrol exited with code 1: Invalid job id; it is tried again, and the run goes on" in line
    process.send_signal(signal.SIGTERM)
    assert finish_all([process], 60)[0][0] == 128 + signal.SIGTERM


def test_ranks_by_topology_in_a_step(slurm):  # noqa: F811
    """A task's number says who hosts the rendezvous, and not the rank. This cluster has no switches: places are nodes' names."""
    script = 'test "$SLURM_PROCID" = 0 && export DDPRUN_TOPOLOGY=z; exec "$@"'
    show = 'echo "rank $RANK on $SLURMD_NODENAME at ${DDPRUN_TOPOLOGY:-$SLURM_TOPOLOGY_ADDR}"'
    flags = ["--master-addr", "127.0.0.1", "--rank-order", "topology"]
    command = [DAEMONS["srun"], "-Q", "--nodes=2", "--ntasks=2", "sh", "-c", script, "-", DDPRUN, *flags, "sh", "-c", show]
    result = run(command, env=environment(slurm))
    assert result.returncode == 0, result
    assert sorted(re.findall(r"rank (\d) on (n\d) at (\w+)", result.stdout)) == [("0", "n2", "n2"), ("1", "n1", "z")], result


def test_without_an_allocation_it_says_so(slurm):  # noqa: F811
    result = run([DDPRUN, "--srun", "true"], env=environment(slurm))
    assert result.returncode == 2 and "run it under salloc or sbatch" in result.stderr, result
