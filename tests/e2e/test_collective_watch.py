# SPDX-License-Identifier: Apache-2.0
"""Python ranks whose collectives do not match, and which know nothing of ddprun: the verdict names the rank and the
collective, from PyTorch's own flight recorder."""

import json
import os
import pathlib
import re
import runpy
import socket
import sys
import time
import types

import pytest

from conftest import DDPRUN, REPO, clean_environment, finish_all, free_port, run, start

torch = pytest.importorskip("torch")
from torch_versions import each_version  # noqa: E402

DEADLINE_S = 120
WORLD = 4

# Everybody calls the same, and rank 2 something else in the place of the last one.
PROGRAM = """
import datetime, os, sys, time
import torch, torch.distributed as dist

kinds, timeout = sys.argv[1].split(","), float(sys.argv[2])
kind = kinds[int(os.environ["TORCHELASTIC_RESTART_COUNT"])]
backend = (sys.argv[3:] or ["gloo"])[0]
if backend == "stand-in":
    import stand_in_backend
    stand_in_backend.register(backend)
dist.init_process_group(backend, timeout=datetime.timedelta(seconds=timeout))
everyone = dist.new_group(timeout=datetime.timedelta(seconds=timeout))
for _ in range(5):
    dist.all_reduce(torch.ones(3))
store = dist.distributed_c10d._get_default_store()
store.set(f"{kind}/{dist.get_rank()}", "1")
if dist.get_rank() == 2:
    if kind == "asleep":
        time.sleep(600)
    elif kind == "shape":
        dist.all_reduce(torch.ones(512))
    elif kind == "missing":
        dist.broadcast(torch.ones(7), 0)
    elif kind == "group":
        dist.all_reduce(torch.ones(256), group=everyone)
    elif kind == "done":
        # A rank that leaves while others still read its part of all_reduce 5 breaks that one.
        store.wait([f"{kind}/{rank}" for rank in range(dist.get_world_size())])
        sys.exit(0)
else:
    dist.all_reduce(torch.ones(256))
    dist.broadcast(torch.ones(7), 0)
time.sleep(600)
"""

MOST = "ranks 0-1, 3 wait in all_reduce 6 (1 KiB float32)"
MOST_CALLED = "ranks 0-1, 3 have called all_reduce 6 (1 KiB float32)"
SENTENCES = {
    "asleep": f"{MOST}; rank 2 has not begun it: its last was all_reduce 5",
    "done": f"{MOST}; rank 2 has not begun it: its last was all_reduce 5",
    "shape": "rank 2 has called all_reduce 6 (2 KiB float32) where RANKS called all_reduce 6 (1 KiB float32)",
    "missing": f"rank 2 has called broadcast 6 (28 bytes float32) where {MOST_CALLED}",
    "group": f"{MOST}; rank 2 waits in all_reduce 1 (1 KiB float32) of group 1",
}


WARM = ("--preload", "torch")


def environment(**variables):
    return clean_environment(**{"PYTHON_EXEC": sys.executable, "OMP_NUM_THREADS": "1", **variables})


def write(folder, text, name="program.py"):
    path = folder / name
    path.write_text(text)
    return path


def simplified(sentence):
    """Gloo aborts the process that receives more than it expects, one of ranks 0, 1 and 3, which says nothing any more; on a busy
    machine it may have said where it is before."""
    return re.sub(r"(?<=2 KiB float32\) )where ranks? ([013]|[01], 3|0-1|0-1, 3) (has|have) called", "where RANKS called", sentence)


def cause_of(verdict):
    return json.loads(pathlib.Path(verdict).read_text())["cause"]


@pytest.mark.nightly
@pytest.mark.parametrize("kind", SENTENCES)
def test_the_rank_that_differs_is_named_when_a_collective_times_out(tmp_path, kind):
    command = [DDPRUN, "--standalone", "--nproc-per-node", WORLD, "--verdict-file", tmp_path / "verdict"]
    done = run([*command, write(tmp_path, PROGRAM), kind, 5], env=environment())
    assert done.returncode != 0
    sentence = cause_of(tmp_path / "verdict")["collectives"]["sentence"]
    assert simplified(sentence) == SENTENCES[kind], done.stderr
    assert f"collectives: {sentence}" in done.stderr


def test_ranks_of_another_node_are_named_too(tmp_path):
    program = write(tmp_path, PROGRAM)
    port = free_port()
    command = [DDPRUN, "--nnodes", 2, "--nproc-per-node", 2, "--master-addr", "127.0.0.1", "--master-port", port]
    nodes = [
        start([*command, "--node-rank", rank, "--verdict-file", tmp_path / f"verdict{rank}", program, "asleep", 5], env=environment())
        for rank in (0, 1)
    ]
    finish_all(nodes, DEADLINE_S)
    for rank in (0, 1):
        assert cause_of(tmp_path / f"verdict{rank}")["collectives"]["sentence"] == SENTENCES["asleep"]


@each_version()
def test_a_hang_is_found_though_nothing_is_reported(tmp_path, python):
    command = [DDPRUN, "--standalone", "--nproc-per-node", WORLD, *WARM, "--hang-timeout", 3]
    command += ["--verdict-file", tmp_path / "verdict"]
    done = run([*command, write(tmp_path, PROGRAM), "asleep", 600], env=environment(PYTHON_EXEC=python))
    assert done.returncode == 124, done.stderr
    cause = cause_of(tmp_path / "verdict")
    assert (cause["kind"], cause["rank"]) == ("worker_hung", 2)
    assert cause["collectives"]["sentence"] == SENTENCES["asleep"]
    # On the console this is about one screen, without the thread that watches the collectives.
    # (A rank whose peer is killed may say so before it is killed itself.)
    assert len([line for line in done.stderr.splitlines() if not line.startswith("[")]) < 60, done.stderr
    assert "sitecustomize" not in done.stderr
    assert done.stderr.count("reading the stacks of this node's workers") == 1, done.stderr
    assert done.stderr.index("stacks of rank 2 ") < done.stderr.index("stacks of rank 0 "), "the one that hangs comes first"
    assert done.stderr.count("program.py:") > WORLD, "each rank's place in the program, and again in the verdict"
    assert "ddprun: with --log-dir all stacks are kept, in rank_R/stacks.txt\n" in done.stderr
    assert len(cause["hang"]["stack"]) > 20, "the verdict file has more"


@each_version(since="2.15")
def test_a_hang_is_found_in_the_recorder_of_nccl2(tmp_path, python):
    """Where each backend has one; a GPU is not needed for a backend of that name."""
    command = [DDPRUN, "--standalone", "--nproc-per-node", WORLD, *WARM, "--hang-timeout", 3, "--verdict-file", tmp_path / "verdict"]
    variables = {"PYTHON_EXEC": python, "PYTHONPATH": os.path.dirname(os.path.abspath(__file__))}
    done = run([*command, write(tmp_path, PROGRAM), "asleep", 600, "stand-in"], env=environment(**variables))
    assert done.returncode == 124, done.stderr
    cause = cause_of(tmp_path / "verdict")
    assert (cause["kind"], cause["rank"]) == ("worker_hung", 2)
    assert cause["collectives"]["sentence"] == SENTENCES["asleep"]


def entry(profiling_name, number, created, state="scheduled", retired=False):
    """As torch's recorders write it."""
    return {
        "process_group": ["0", "default_pg"], "collective_seq_id": number, "is_p2p": False, "profiling_name": profiling_name,
        "time_created_ns": created, "state": state, "retired": retired, "input_dtypes": ["Float"], "input_sizes": [[256]],
    }


def dump_of(*entries):
    return json.dumps({"version": "2.10", "entries": entries} if entries else {"version": "2.10"}).encode()


@pytest.fixture
def recorders(monkeypatch):
    """What collective_watch.py reads of a torch whose recorders are given, of one whose groups have the backends named."""
    import torch.distributed.distributed_c10d as c10d

    monkeypatch.setenv("DDPRUN_COLLECTIVE_WATCH", "/none")
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr(c10d, "_update_default_pg", c10d._update_default_pg)
    watch = runpy.run_path(str(REPO / "launcher" / "collectives" / "collective_watch.py"), run_name="collective_watch")

    def place(general, nccl, backends, with_nccl):
        group = types.SimpleNamespace(
            _device_types=list(range(len(backends))), _get_backend=lambda i: types.SimpleNamespace(name=lambda: backends[i])
        )
        world = types.SimpleNamespace(pg_flight_recorder_hooks=[group] if backends else [])
        extension = types.SimpleNamespace(_dump_fr_trace_json=general, _dump_nccl_trace_json=nccl)
        found = watch["Place"]()
        for dump in watch["Recorders"](types.SimpleNamespace(_world=world), extension).entries(with_nccl):
            for one in json.loads(dump).get("entries", ()):
                found.add(one)
        return found.message().decode().splitlines()

    return place


def test_what_is_done_and_not_yet_retired_is_not_waited_for(tmp_path, monkeypatch):
    """Gloo's thread retires an entry a moment after the caller has gone on, on a busy machine much later."""
    import torch.distributed.distributed_c10d as c10d

    dumps = []

    def dump(with_entries, only_active):
        dumps.append(with_entries)
        done = entry("gloo:all_reduce", 5, 1, retired=dumps.count(True) > 2)
        return dump_of(done, entry("gloo:all_reduce", 6, 2)) if with_entries else dump_of()

    monkeypatch.setenv("DDPRUN_COLLECTIVE_WATCH", "/none")
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setenv("DDPRUN_NOTIFY_SOCKET", str(tmp_path / "agent"))
    monkeypatch.setattr(c10d, "_update_default_pg", c10d._update_default_pg)
    monkeypatch.setattr(torch._C._distributed_c10d, "_dump_fr_trace_json", dump)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
        agent.bind(str(tmp_path / "agent"))
        agent.settimeout(DEADLINE_S)
        watch = runpy.run_path(str(REPO / "launcher" / "collectives" / "collective_watch.py"), run_name="collective_watch")["Watch"](c10d)
        monkeypatch.setattr(watch, "begun_ns", 0)
        agent.sendto(b"?", str(tmp_path / "agent.places"))
        lines = agent.recv(4096).decode().splitlines()
        watch.ended.set()
    assert lines == ["WAITS=6 all_reduce 1024 float32 0", "LAST=5 all_reduce 1024 float32 0"]


def test_each_backend_is_asked_for_its_own(recorders):
    asked = []

    def general(collectives, only_active, backend="gloo"):
        """general(includeCollectives: bool, onlyActive: bool, backend: str = 'gloo')"""
        asked.append(backend)
        return {"gloo": dump_of(entry("gloo:barrier", 7, 5, retired=True)), "nccl2": dump_of(entry("nccl2:all_reduce", 4, 9))}[backend]

    lines = recorders(general, lambda *_: dump_of(), ["gloo", "nccl2"], with_nccl=False)
    assert asked == ["gloo", "nccl2"]
    assert lines == ["WAITS=4 all_reduce 1024 float32 0", "LAST=7 barrier 1024 float32 0"]


def test_the_first_nccl_has_its_own_where_it_is_asked_for(recorders):
    """TORCH_DIST_USE_NCCL2=0, and PyTorch before 2.15, whose general recorder takes no name."""
    def general(collectives, only_active):
        """general(includeCollectives: bool, onlyActive: bool)"""
        return dump_of()

    done = entry("nccl:all_reduce", 3, 1, "completed", retired=True)
    timed_out = entry("nccl:all_reduce", 4, 2, "started", retired=True)
    for backends in ([], ["nccl2"]):  # the other: of a version that records it in the general one
        assert recorders(general, lambda *_: dump_of(done, timed_out), backends, with_nccl=True) == [
            "WAITS=4 all_reduce 1024 float32 0",
            "LAST=3 all_reduce 1024 float32 0",
        ]
        assert recorders(general, lambda *_: dump_of(done, timed_out), backends, with_nccl=False) == ["WAITS="]


def test_a_hang_is_found_over_two_nodes(tmp_path):
    program = write(tmp_path, PROGRAM)
    port = free_port()
    command = [DDPRUN, "--nnodes", 2, "--nproc-per-node", 2, "--master-addr", "127.0.0.1", "--master-port", port]
    command += ["--hang-timeout", 3, *WARM]
    nodes = [
        start([*command, "--node-rank", rank, "--verdict-file", tmp_path / f"verdict{rank}", program, "asleep", 600], env=environment())
        for rank in (0, 1)
    ]
    finish_all(nodes, DEADLINE_S)
    for rank in (0, 1):
        cause = cause_of(tmp_path / f"verdict{rank}")
        assert (cause["kind"], cause["rank"]) == ("worker_hung", 2)
        assert cause["collectives"]["sentence"] == SENTENCES["asleep"]


def test_each_round_of_forked_workers_says_which_rank_differed(tmp_path):
    """The first rounds end with a restart, the last one with the verdict. All kinds, a run each, are a nightly test."""
    kinds = ["asleep", "shape", "group"]
    command = [DDPRUN, "--standalone", "--nproc-per-node", WORLD, *WARM, "--max-restarts", len(kinds) - 1]
    command += ["--event-log", tmp_path / "events", "--verdict-file", tmp_path / "verdict"]
    done = run([*command, write(tmp_path, PROGRAM), ",".join(kinds), 6], env=environment())
    print(done.stderr)
    assert done.returncode != 0
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    said = [event.get("collectives", "") for event in events if event["event"] == "round.broken"][: len(kinds) - 1]
    said.append(cause_of(tmp_path / "verdict")["collectives"]["sentence"])
    assert {kind: simplified(sentence) for kind, sentence in zip(kinds, said)} == {kind: SENTENCES[kind] for kind in kinds}
    for sentence in said[:-1]:
        assert f"; collectives: {sentence}" in done.stderr
    assert f"collectives: {said[-1]}" in done.stderr


DIES = """
import os, pathlib, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(3))
if dist.get_rank() == 2:
    pathlib.Path(sys.argv[1]).touch()
    os._exit(7)
dist.all_reduce(torch.ones(256))
time.sleep(600)
"""
ENDS_S = 2 + 3  # what is promised, and what a busy machine may take to end processes


def test_a_rank_that_fails_ends_those_that_wait_in_a_collective(tmp_path):
    command = [DDPRUN, "--standalone", "--nproc-per-node", WORLD, *WARM, "--verdict-file", tmp_path / "verdict"]
    done = run([*command, write(tmp_path, DIES), tmp_path / "died"], env=environment())
    assert time.time() - (tmp_path / "died").stat().st_mtime < ENDS_S
    assert done.returncode == 7, done.stderr
    assert cause_of(tmp_path / "verdict")["rank"] == 2


LEAVES = """
import os, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(3))
if dist.get_rank() == 1:
    print("the data set is empty, leaving", flush=True)
    sys.exit(0)
dist.all_reduce(torch.ones(256))
time.sleep(600)
"""


def check_the_verdict_begins_with_the_rank_that_left(errors, verdict):
    cause = cause_of(verdict)
    assert (cause["kind"], cause["rank"], cause["exit_code"]) == ("worker_ended_early", 1, 1), errors
    assert cause["last_lines"] == ["the data set is empty, leaving"]
    first, *rest = errors[errors.index("ddprun: run failed: ") :].splitlines()
    assert re.fullmatch(
        r"ddprun: run failed: rank 1 \(.*\) exited with code 0 after .* s, while others waited for it in all_reduce 2, round 1", first
    )
    assert "  last lines of rank 1:" in rest and "    the data set is empty, leaving" in rest
    assert any(re.fullmatch("    ranks? .* exited with code 1", line) for line in rest)
    assert "    rank 1 had succeeded" not in rest


def test_the_verdict_begins_with_the_rank_that_left_early(tmp_path):
    command = [DDPRUN, "--standalone", "--nproc-per-node", 2, *WARM, "--verdict-file", tmp_path / "verdict"]
    done = run([*command, write(tmp_path, LEAVES)], env=environment())
    assert done.returncode == 1, done.stderr
    check_the_verdict_begins_with_the_rank_that_left(done.stderr, tmp_path / "verdict")


def test_the_verdict_begins_with_the_rank_that_left_early_on_another_node(tmp_path):
    program = write(tmp_path, LEAVES)
    command = [DDPRUN, "--nnodes", 2, "--nproc-per-node", 1, "--master-addr", "127.0.0.1", "--master-port", free_port(), *WARM]
    nodes = [
        start([*command, "--node-rank", rank, "--verdict-file", tmp_path / f"verdict{rank}", program], env=environment())
        for rank in (0, 1)
    ]
    for rank, (_, _, errors) in enumerate(finish_all(nodes, DEADLINE_S)):
        check_the_verdict_begins_with_the_rank_that_left(errors, tmp_path / f"verdict{rank}")


# What a program sees of it: nothing, until it imports torch.distributed.
PROBE = """
import json, os, sys
import warnings
before = {"path": sys.path, "environment": [name for name in os.environ if "PYTHONPATH" in name or "WATCH" in name]}
before["modules"] = "sitecustomize" in sys.modules
before["threads"] = len(os.listdir("/proc/self/task"))
before["finders"] = [type(finder).__name__ for finder in sys.meta_path]
before["customized"] = globals()["__builtins__"].__dict__.get("customized")
print(json.dumps(before))
"""


def probe(tmp_path, *flags, **variables):
    done = run([DDPRUN, "--standalone", *flags, write(tmp_path, PROBE)], env=environment(**variables))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1].removeprefix("[0] "))


def test_a_program_sees_one_finder_more(tmp_path):
    watched, plain = probe(tmp_path), probe(tmp_path, "--flight-recorder", "off")
    assert watched["finders"] == ["AfterImport", *plain["finders"]]
    assert {**watched, "finders": None} == {**plain, "finders": None}


def test_the_users_path_and_sitecustomize_stay(tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    write(folder, "import builtins\nbuiltins.customized = True\n", "sitecustomize.py")
    seen = probe(tmp_path, PYTHONPATH=str(folder))
    assert seen["customized"] is True and seen["modules"] is True
    assert seen["environment"] == ["PYTHONPATH"] and str(folder) in seen["path"]
    assert not any("collective_watch" in one for one in seen["path"])


@pytest.mark.nightly
def test_a_recorder_that_is_switched_off_or_unknown_disturbs_nothing(tmp_path):
    program = write(tmp_path, PROGRAM)
    command = [DDPRUN, "--standalone", "--nproc-per-node", WORLD, *WARM, "--verdict-file", tmp_path / "verdict"]
    run([*command, program, "asleep", 3], env=environment(TORCH_FR_BUFFER_SIZE="0"))
    assert cause_of(tmp_path / "verdict")["kind"] == "worker_exited"
    run([*command, "--flight-recorder", "off", program, "asleep", 3], env=environment())
    assert cause_of(tmp_path / "verdict")["collectives"] is None


CALM = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
for _ in range(50):
    dist.all_reduce(torch.ones(3))
dist.destroy_process_group()
child = os.fork()
if child == 0:
    raise SystemExit(0)
assert os.waitpid(child, 0)[1] == 0
print("done", flush=True)
"""


def test_a_training_that_ends_well_says_nothing_of_it(tmp_path):
    done = run([DDPRUN, "--standalone", "--nproc-per-node", 2, *WARM, write(tmp_path, CALM)], env=environment())
    assert done.returncode == 0, done.stderr
    # A busy machine may take long to import torch, and that is said.
    said = [line for line in done.stderr.splitlines() if not line.endswith("the workers are not started yet")]
    assert done.stdout.count("done") == 2 and said == []
