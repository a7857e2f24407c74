# SPDX-License-Identifier: Apache-2.0
"""A command line written for torchrun, flag by flag: what the program sees is what torchrun gives it."""

import json
import socket

import pytest
from conftest import DDPRUN, TORCHRUN, clean_environment, finish_all, free_port, run, start

SEES = (
    "import json, os, sys\n"
    "print(json.dumps({'argv': sys.argv, 'name': __name__, 'file': __file__, 'package': __package__,\n"
    "  'folder_in_path': os.path.dirname(os.path.abspath(__file__)) in sys.path,\n"
    "  'environment': {n: os.environ.get(n) for n in NAMES}}))\n"
)
NAMES = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "ROLE_NAME", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RESTART_COUNT"]
ALONE = ["--nnodes=1", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "sees.py"
    path.write_text(f"NAMES = {NAMES!r}\n" + SEES)
    return path


def sees(launcher, *arguments, **variables):
    done = run([*launcher, *ALONE, *arguments], env=clean_environment(**variables))
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if "{" in line)
    return json.loads(line[line.index("{") :])


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--run-path"],
        ["--run-path", "--no-python"],
        ["--role", "trainer", "--max-restarts", "2"],
        ["--nnode", "1", "--max_restart", "4"],
        ["--monitor-interval", "0.2", "--start-method", "fork", "--event-log-handler", "console"],
        ["--rdzv-conf", "read_timeout=9,close_timeout=3,keep_alive_interval=2,is_host=true"],
    ],
    ids=" ".join,
)
def test_a_script_sees_the_same(script, flags):
    arguments = [*flags, script, "--device=${local_rank}", "a b", ""]
    ours, theirs = sees([DDPRUN], *arguments), sees(TORCHRUN, *arguments)
    assert ours == theirs
    assert ours["argv"][1:] == ["--device=0", "a b", ""]


def test_variables_are_defaults_of_flags_as_there(script):
    variables = {"PET_ROLE": "r", "PET_MAX_RESTARTS": "7", "PET_MONITOR_INTERVAL": "1", "PET_RUN_PATH": "1"}
    ours, theirs = sees([DDPRUN], script, **variables), sees(TORCHRUN, script, **variables)
    assert ours == theirs
    assert ours["environment"]["ROLE_NAME"] == "r" and not ours["folder_in_path"]


def test_two_dollars_stay_two(script):
    """torchrun's template makes one of them, and `bash -c 'kill $$'` another command."""
    assert sees([DDPRUN], script, "$$", "$local_rank", "${HOME}")["argv"][1:] == ["$$", "$local_rank", "${HOME}"]
    assert sees(TORCHRUN, script, "$$")["argv"][1:] == ["$"]


def test_the_eleventh_worker_has_its_number():
    done = run([DDPRUN, "--standalone", "--nproc-per-node", "12", "echo", "x${local_rank}"])
    assert done.returncode == 0, done.stderr
    assert sorted(line.split()[-1] for line in done.stdout.splitlines()) == sorted(f"x{i}" for i in range(12))


def test_is_host_says_who_hosts_and_not_the_address(port):
    """A node that is told not to host waits for one that does, though the address is its own."""
    nodes = [DDPRUN, "--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=a", "--nproc-per-node=1"]
    guest = start([*nodes, "--rdzv-conf=is_host=0", "sh", "-c", "echo guest $RANK"])
    assert "not reached yet" in guest.stderr.readline()
    host = start([*nodes, "--rdzv-conf=is_host=1", "sh", "-c", "echo host $RANK"])
    results = finish_all([guest, host])
    assert [code for code, _, _ in results] == [0, 0], results


def test_is_host_at_an_address_that_is_no_interface(port):
    """As behind a Kubernetes service: it listens at all, and says so by being there."""
    nodes = [DDPRUN, "--nnodes=2", "--nproc-per-node=1", "--rdzv-id=a"]
    host = start([*nodes, f"--rdzv-endpoint=192.0.2.1:{port}", "--rdzv-conf=is_host=1", "--local-addr=127.0.0.1", "true"])
    guest = start([*nodes, f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-conf=is_host=0", "true"])
    results = finish_all([host, guest])
    assert [code for code, _, _ in results] == [0, 0], results


def test_what_has_no_effect_is_said_to_those_who_ask():
    command = [DDPRUN, "--standalone", "--monitor-interval", "5", "true"]
    assert run(command).stderr == ""
    said = run(command, env=clean_environment(LOGLEVEL="INFO")).stderr
    assert "--monitor-interval has no effect" in said and len(said.splitlines()) == 1


def test_a_world_of_one_in_a_step_of_many_is_said():
    step = {"SLURM_STEP_NUM_NODES": "4", "SLURM_STEP_ID": "0"}
    done = run([DDPRUN, "true"], env=clean_environment(**step))
    assert done.returncode == 0
    assert "--nnodes 4" in done.stderr and len(done.stderr.splitlines()) == 1
    assert run([DDPRUN, "--standalone", "true"], env=clean_environment(**step)).stderr == ""


def test_a_folder_with_main_is_a_program(tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").write_text("import sys; print('main', sys.argv[1:])\n")
    for launcher in ([DDPRUN], TORCHRUN):
        done = run([*launcher, *ALONE, tmp_path / "app", "x"])
        assert done.returncode == 0 and "main ['x']" in done.stdout, done.stderr


def test_ipv6_in_brackets():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    command = ["--nnodes=2", "--master-addr=[::1]", f"--master-port={free_port()}", "--nproc-per-node=1"]
    nodes = [start([DDPRUN, *command, "--node-rank", rank, "sh", "-c", "echo $MASTER_ADDR"]) for rank in "01"]
    results = finish_all(nodes)
    assert [code for code, _, _ in results] == [0, 0], results
    assert "::1" in results[0][1]
