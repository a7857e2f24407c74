# SPDX-License-Identifier: Apache-2.0
"""Ranks that cannot say where they are: the verdict has it from the dumps of PyTorch's flight recorder. The program here does
what ProcessGroupNCCL does: it makes a FIFO, dumps when a byte comes, and dumps before it aborts."""

import glob
import json
import os
import pathlib
import signal
import sys
import time

import pytest

from conftest import DDPRUN, agent_of, clean_environment, finish_all, free_port, start, wait_for

DEADLINE_S = 60
WORLD = 3
SENTENCE = "ranks 0-1 wait in all_reduce 4 (1 KiB float32); rank 2 has not begun it: its last was all_reduce 3"

# Ranks 0 and 1 wait in the fourth all_reduce, rank 2 does not call it.
PROGRAM = """
import os, pickle, select, sys, time

kind, folder = sys.argv[1], sys.argv[2]
rank = int(os.environ["RANK"])
prefixes = [os.environ.get(name) for name in ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")]
prefix = next(filter(None, prefixes), folder + "/unwanted_")
pipe = os.environ.get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", folder + "/unwanted_") + f"{rank}.pipe"
with open(f"{folder}/variables{rank}", "w") as file:
    file.write("\\n".join(sorted(name for name in os.environ if name.startswith("TORCH_") and "ASYNC" not in name)))

def entry(number, state):
    return {
        "frames": [{"name": "all_reduce", "filename": "distributed_c10d.py", "line": 3068}],
        "record_id": number, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": number,
        "p2p_seq_id": 0, "op_id": number, "profiling_name": "nccl:all_reduce", "time_created_ns": time.time_ns(),
        "duration_ms": 0.5, "input_sizes": [[256]], "input_dtypes": ["Float"], "output_sizes": [[256]],
        "output_dtypes": ["Float"], "state": state, "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None, "retired": state == "completed", "timeout_ms": 600000, "is_p2p": False,
    }

entries = [entry(number, "completed") for number in (1, 2, 3)]
if rank < 2:
    entries.append(entry(4, "started"))
group = {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}

def dump():
    data = pickle.dumps({"version": "2.10", "pg_config": {"0": group}, "pg_status": {}, "entries": entries}, protocol=2)
    with open(f"{prefix}{rank}", "wb") as file:
        file.write(data[: len(data) // 2] if kind == "damaged" else data)

reader = None
if kind not in ("deaf", "absent"):
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
elif kind == "deaf":
    os.mkfifo(pipe)
    if rank == 0:  # its watchdog has dumped, and looks at the pipe no more
        dump()
open(f"{folder}/ready{rank}", "w").close()
while len([name for name in os.listdir(folder) if name.startswith("ready")]) < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.01)
if kind in ("abort", "damaged_abort") and rank == 0:
    kind = kind.replace("_abort", "")
    dump()
    os.abort()
while True:
    if reader is None:
        time.sleep(60)
    select.select([reader], [], [])
    if not os.read(reader, 128):
        time.sleep(0.05)  # nobody writes
        continue
    open(f"{folder}/asked{rank}", "w").close()
    dump()
"""


def launch(folder, kind, *flags, **variables):
    program = folder / "program.py"
    program.write_text(PROGRAM)
    command = [DDPRUN, *flags, "--verdict-file", folder / "verdict", "--no-python", sys.executable, program, kind, folder]
    return start(command, env=clean_environment(**variables))


def result(folder, kind, *flags, **variables):
    flags = ["--standalone", "--nproc-per-node", WORLD, *flags]
    ((code, _, errors),) = finish_all([launch(folder, kind, *flags, **variables)], DEADLINE_S)
    return code, errors, json.loads((folder / "verdict").read_text())["cause"]


def asked(folder):
    return sorted(path.name for path in folder.glob("asked*"))


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Beside this file no test makes FIFOs, but any run beside it has a folder."""
    before = set(glob.glob("/dev/shm/ddprun-*/*.pipe"))
    yield
    assert set(glob.glob("/dev/shm/ddprun-*/*.pipe")) <= before


def test_a_hang_names_the_rank_that_is_missing(tmp_path):
    code, errors, cause = result(tmp_path, "hang", "--heartbeat-timeout", 2, "--log-dir", tmp_path / "logs", "--redirects", 3)
    assert code == 124, errors
    assert (cause["kind"], cause["rank"]) == ("worker_hung", 2), errors
    assert cause["collectives"]["sentence"] == SENTENCE
    assert errors.count(f"collectives: {SENTENCE}") == 1
    assert asked(tmp_path) == ["asked0", "asked1", "asked2"]
    copies = list((tmp_path / "logs").rglob("flight_recorder.pickle"))
    assert len(copies) == WORLD


def test_an_event_has_it_too(tmp_path):
    code, errors, _ = result(tmp_path, "hang", "--heartbeat-timeout", 2, "--event-log", tmp_path / "events")
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    broken = [event for event in events if event["event"] == "round.broken"]
    assert broken[0]["collectives"] == SENTENCE, errors


def test_ranks_of_another_node_are_asked_too(tmp_path):
    port = free_port()
    flags = ["--nnodes", 2, "--master-addr", "127.0.0.1", "--master-port", port, "--heartbeat-timeout", 2]
    nodes = [launch(tmp_path, "hang", *flags, "--nproc-per-node", 2 - rank, "--node-rank", rank) for rank in (0, 1)]
    results = finish_all(nodes, DEADLINE_S)
    cause = json.loads((tmp_path / "verdict").read_text())["cause"]
    assert cause["collectives"]["sentence"] == SENTENCE, results


def test_a_rank_that_the_watchdog_aborted_has_left_a_dump(tmp_path):
    code, errors, cause = result(tmp_path, "abort")
    assert code == 134, errors
    assert (cause["rank"], cause["signal"]) == (0, "SIGABRT")
    assert cause["collectives"]["sentence"] == SENTENCE, errors
    assert asked(tmp_path) == ["asked1", "asked2"]


def test_a_damaged_dump_says_nothing(tmp_path):
    code, errors, cause = result(tmp_path, "damaged", "--heartbeat-timeout", 2)
    assert code == 124, errors
    assert asked(tmp_path) == ["asked0", "asked1", "asked2"]
    assert "collectives" not in cause or not cause["collectives"]


def test_a_damaged_dump_of_one_that_aborted_says_nothing(tmp_path):
    code, errors, cause = result(tmp_path, "damaged_abort")
    assert code == 134, errors
    assert asked(tmp_path) == []
    assert "collectives" not in cause or not cause["collectives"]


def test_without_a_reader_nobody_is_waited_for(tmp_path):
    begin = time.monotonic()
    code, errors, cause = result(tmp_path, "deaf", "--heartbeat-timeout", 2)
    assert code == 124, errors
    # What the first one has dumped before is taken.
    assert cause["collectives"]["sentence"].startswith("rank 0 waits in all_reduce 4 (1 KiB float32)"), errors
    assert time.monotonic() - begin < DEADLINE_S / 2


@pytest.mark.parametrize("prefix", ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"])
def test_the_variables_of_a_person_stay(tmp_path, prefix):
    own = {
        prefix: f"{tmp_path}/own_",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/pipe_",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    }
    code, errors, cause = result(tmp_path, "hang", "--heartbeat-timeout", 2, **own)
    assert cause["collectives"]["sentence"] == SENTENCE, errors
    assert (tmp_path / "variables0").read_text().split() == sorted(own)
    assert sorted(path.name for path in tmp_path.glob("own_*")) == ["own_0", "own_1", "own_2"]
    assert sorted(path.name for path in tmp_path.glob("pipe_*")) == ["pipe_0.pipe", "pipe_1.pipe", "pipe_2.pipe"]


def test_an_old_dump_of_a_persons_own_is_not_taken(tmp_path):
    for rank in range(WORLD):
        (tmp_path / f"own_{rank}").write_bytes((pathlib.Path(__file__).parents[1] / f"unit/launcher/flight_dumps/rank{rank}.pickle").read_bytes())
        os.utime(tmp_path / f"own_{rank}", (1, 1))
    code, errors, cause = result(tmp_path, "absent", "--heartbeat-timeout", 2, TORCH_FR_DUMP_TEMP_FILE=f"{tmp_path}/own_")
    assert code == 124, errors
    assert "collectives" not in cause or not cause["collectives"]


def test_an_agent_that_is_killed_leaves_no_pipe(tmp_path):
    process = launch(tmp_path, "hang", "--standalone", "--nproc-per-node", WORLD)
    wait_for("every rank", lambda: len(list(tmp_path.glob("ready*"))) == WORLD)
    pipes = glob.glob("/dev/shm/ddprun-*/flight_*.pipe")
    assert len(pipes) >= WORLD
    # Whoever else is on the machine cannot eat the byte that asks for a dump.
    assert all(os.stat(os.path.dirname(pipe)).st_mode & 0o777 == 0o700 for pipe in pipes)
    os.kill(agent_of(process.pid), signal.SIGKILL)
    finish_all([process], DEADLINE_S)
    assert not any(os.path.exists(os.path.dirname(pipe)) for pipe in pipes)


def test_off_means_none_of_it(tmp_path):
    code, errors, cause = result(tmp_path, "hang", "--heartbeat-timeout", 2, "--flight-recorder", "off")
    assert code == 124, errors
    assert (tmp_path / "variables0").read_text() == ""
    assert asked(tmp_path) == []
    assert "collectives" not in cause or not cause["collectives"]
