# SPDX-License-Identifier: Apache-2.0
"""How workers end under torchrun and under ddprun, and what is left of them: signals, exit codes, error files, folders.
And flags that torchrun has had since 2.12, by their documented meaning."""

import json
import os
import re
import signal
import socket
import subprocess

import pytest
from conftest import (
    DDPRUN,
    TORCHRUN,
    clean_environment,
    finish_all,
    processes_of_this_session,
    run,
    start,
    torchrun_standalone,
)
from side_by_side import TORCH_LAUNCH, Case, Side

ONE = ("--rdzv-id=job",)


@pytest.fixture
def both(tmp_path):
    """Starts a case: its sides, torchrun's first. None outlives the test, however that ends."""
    started = []

    def start_both(case):
        for name, launcher in (("torchrun", case.torchrun), ("ddprun", [DDPRUN])):
            started.append(Side(case, launcher, tmp_path / name))
        return started

    yield start_both
    for node in (node for side in started for node in side.nodes):
        node.kill()
        node.wait()


def noted(seen):
    return [json.loads(path.read_text()) for path in sorted(seen.folder.glob("*.signals"))]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"])
def test_workers_get_the_same_signals(both, name):
    """The one that the launcher got; and one signal, not the second one of the grace's end."""
    flags = (*ONE, "--nproc-per-node=2", "--signals-to-handle=SIGTERM,SIGINT,SIGHUP,SIGUSR1")
    sides = both(Case("signals", flags, arguments=("signals",)))
    for side in sides:
        side.wait_for_files("*.ready", 2)
        side.nodes[0].send_signal(getattr(signal, name))
    theirs, ours = (side.finish() for side in sides)
    assert noted(ours) == noted(theirs) == [[name], [name]]
    assert theirs.codes == [1]
    assert ours.codes == [128 + getattr(signal, name)]


def test_what_the_others_get_when_one_fails(both):
    sides = both(Case("fails", (*ONE, "--nproc-per-node=3"), arguments=("fails:1",)))
    theirs, ours = (side.finish() for side in sides)
    assert noted(ours) == noted(theirs) == [["SIGTERM"], ["SIGTERM"]]
    assert theirs.codes == [1]
    assert ours.codes == [7]


def test_log_folders_have_the_same_in_them(both):
    """torchrun's `attempt_N/LOCAL_RANK` is `round_N+1/rank_RANK` here; all that is in them has the same name."""
    flags = (*ONE, "--nproc-per-node=2", "--max-restarts=1", "--log-dir=FOLDER/logs", "--redirects=3")
    sides = both(Case("again", flags, arguments=("again:1",)))
    theirs, ours = (side.finish() for side in sides)
    assert theirs.codes == ours.codes == [0]
    found = []
    for seen, place, first in (
        (theirs, r"job_\w+/attempt_(\d+)/(\d+)/(.*)", 0),
        (ours, r"job/round_(\d+)/rank_(\d+)/(.*)", 1),
    ):
        files = [path for path in (seen.folder / "logs").rglob("*") if path.is_file()]
        places = [re.fullmatch(place, str(path.relative_to(seen.folder / "logs"))) for path in files]
        assert all(places), files
        found.append(sorted((int(at[1]) - first, int(at[2]), at[3]) for at in places))
    assert found[0] == found[1]
    assert len(found[1]) == 2 * 2 * 2


RECORDED = """\
import os, sys
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    raise ValueError("the moon is in the wrong phase")
main()
"""


def test_error_files_have_the_same_in_them(both, tmp_path):
    """A @recorded program's own, and what the launcher leaves for whoever started it."""
    program = tmp_path / "raises.py"
    program.write_text(RECORDED)
    case = Case(
        "record",
        (*ONE, "--log-dir=FOLDER/logs", "--redirects=3"),
        program=(str(program),),
        variables={"TORCHELASTIC_ERROR_FILE": "FOLDER/own.json"},
    )
    theirs, ours = (side.finish() for side in both(case))
    assert (theirs.codes, ours.codes) == ([1], [1])
    shapes = []
    for seen in (theirs, ours):
        records = [
            json.loads(path.read_text())["message"]
            for path in (*seen.folder.rglob("error.json"), seen.folder / "own.json")
        ]
        assert len(records) == 2, seen.errors
        for record in records:
            assert record["message"] == "ValueError: the moon is in the wrong phase"
            assert "in main" in record["extraInfo"]["py_callstack"]
            assert record["extraInfo"]["timestamp"].isdigit()
        shapes.append([(sorted(record), sorted(record["extraInfo"]), record.get("errorCode")) for record in records])
    assert shapes[0] == shapes[1]
    assert shapes[1][1][2] == 1


def test_a_local_rank_as_an_argument(tmp_path):
    """What torch.distributed.launch puts in without --use-env is written down here."""
    program = tmp_path / "shows.py"
    program.write_text("import sys\nprint('arguments', sys.argv[1:])\n")
    common = ["--nnodes=1", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1", program]
    theirs = run([*TORCH_LAUNCH, *common, "x"])
    ours = run([DDPRUN, *common, "--local-rank=${local_rank}", "x"])
    for done in (theirs, ours):
        assert "arguments ['--local-rank=0', 'x']" in done.stdout, done.stderr


@pytest.mark.parametrize(
    "flags",
    [
        ["--nnodes=0"],
        ["--nnodes=2:1"],
        ["--nnodes=1:2:3"],
        ["--nproc-per-node=many"],
        ["--max-restarts=-1"],
        ["--max-restarts=x"],
        ["--monitor-interval=x"],
        ["--start-method=x"],
        ["--rdzv-conf=x"],
        ["--master-port=x"],
        ["--node-rank=x"],
        ["-r=4"],
        ["--tee=0:x"],
        ["--local-ranks-filter=x"],
        ["--logs-specs=x"],
        ["--numa-binding=x"],
        ["--module", "--no-python"],
        ["--no-such-flag"],
        ["--m=1"],
    ],
    ids=" ".join,
)
def test_what_torchrun_refuses_is_refused(flags, capsys):
    """By its own code, in this process; here in one sentence."""
    from torch.distributed.run import config_from_args, parse_args

    with pytest.raises((SystemExit, Exception)):
        config_from_args(parse_args([*flags, "true"]))
    done = run([DDPRUN, *flags, "true"])
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_standalone_is_one_node():
    done = run([DDPRUN, "--standalone", "--nnodes=2", "true"])
    assert done.returncode == 2
    assert "--standalone is for one node" in done.stderr


def test_what_is_left_in_the_temporary_folder(tmp_path):
    left = []
    for name, launcher in (("torchrun", TORCHRUN), ("ddprun", [DDPRUN])):
        (tmp_path / name).mkdir()
        alone = ["--nnodes=1", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]
        done = run([*launcher, *alone, "--no-python", "true"], env=clean_environment(TMPDIR=str(tmp_path / name)))
        assert done.returncode == 0, done.stderr
        left.append([path.name.split("_")[0] for path in (tmp_path / name).iterdir()])
    assert left == [["torchelastic"], []]


def test_cpus_are_those_that_may_be_used():
    """From 2.12 on."""
    cpu = str(min(os.sched_getaffinity(0)))
    done = run(
        ["taskset", "-c", cpu, DDPRUN, "--standalone", "--nproc-per-node=cpu", "sh", "-c", "echo of $WORLD_SIZE"]
    )
    assert done.stdout == "[0] of 1\n"


def test_a_prefix_of_2_14():
    prefix = "[${role_name} ${local_rank} ${rank} ${hostname}]:"
    done = run([DDPRUN, "--standalone", "--role=r", "--tee=3", "--log-line-prefix-template", prefix, "echo", "said"])
    assert done.stdout == f"[r 0 0 {socket.gethostname()}]:said\n"


@pytest.mark.parametrize("tee", [[], ["--tee=3"]], ids=["no tee", "tee"])
def test_torchruns_own_prefix(tee, tmp_path):
    program = ["--no-python", f"--log-dir={tmp_path}", *tee, "sh", "-c", "echo said; echo told >&2"]
    theirs = run([*torchrun_standalone(), *program])
    ours = run([DDPRUN, "--standalone", "--log-line-prefix-template=torchrun", *program])
    assert ours.stdout == theirs.stdout
    assert [line for line in theirs.stderr.splitlines() if "told" in line] == ours.stderr.splitlines()


@pytest.mark.parametrize(
    ("flags", "variables"), [(["--shutdown-timeout=1"], {}), ([], {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "1"})]
)
def test_a_time_to_end(flags, variables):
    """From 2.12 on: between the signal and SIGKILL."""
    worker = "trap '' TERM; echo ready; while true; do sleep 0.1; done"
    process = start([DDPRUN, "--standalone", *flags, "sh", "-c", worker], env=clean_environment(**variables))
    assert "ready" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    [(code, _, errors)] = finish_all([process])
    assert code == 143
    assert "workers that did not end within 1 s of SIGTERM are killed" in errors


def test_two_plain_runs_beside_each_other():
    """From 2.12 on a run of one node needs no port that another may have."""
    script = ["sh", "-c", "echo port $MASTER_PORT; read line; exit 0"]
    runs = [
        subprocess.Popen(
            [DDPRUN, *script], env=clean_environment(), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    ports = {run.stdout.readline().split()[-1] for run in runs}
    for process in runs:
        process.communicate("go on\n", timeout=60)
    assert [process.returncode for process in runs] == [0, 0]
    assert len(ports) == 2


def test_keys_of_2_15_are_known():
    done = run([DDPRUN, "--standalone", "--rdzv-conf=cas_backoff_max_seconds=1", "true"])
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_is_left_behind():
    assert not processes_of_this_session()
