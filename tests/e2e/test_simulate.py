# SPDX-License-Identifier: Apache-2.0
"""ddprun simulate: what it prints, and (nightly) that five real runs with the same faults have the goodput that it foretells."""

import contextlib
import dataclasses
import heapq
import json
import os
import pathlib
import re
import resource
import signal
import struct
import sys
import time

import pytest
from conftest import BIN, DDPRUN, clean_environment, finish_all, run, start, wait_for
from process_tree import tree_of

FLEET = ["--nodes", 1000, "--mtbf", "4h", "--spares", 2, "--checkpoint", "90s"]
CPU_SECONDS_MAX = 4  # half of it, measured beside compilers
TRAINER = pathlib.Path(__file__).resolve().parent / "stepping_trainer.py"


def simulate(*flags):
    return run([DDPRUN, "simulate", *flags], env=clean_environment(LC_ALL="C"))


def test_it_says_the_goodput_and_what_to_change():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = simulate(*FLEET)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout.startswith("1000 machines, 2 spares, 7d, one fails every 4h, a checkpoint every 1m30s\n"), done.stdout
    goodput = re.search(r"^goodput +(\d+\.\d+) % +(\d+\.\d+) % +(\d+\.\d+) %$", done.stdout, re.M)
    median, least, most = map(float, goodput.groups())
    assert 95 < least <= median <= most < 100, done.stdout
    changes = re.findall(r"^--[\w -]+? +([+-]\d+\.\d\d)  [#.]{40}$", done.stdout, re.M)
    assert len(changes) >= 4 and sorted(map(float, changes), reverse=True) == list(map(float, changes)), done.stdout
    assert re.search(rf"^worth most: --\S.*, \{changes[0]} points$", done.stdout, re.M), done.stdout
    assert re.search(r"^the run needs ddprun --max-restarts \d+", done.stdout, re.M), done.stdout
    assert simulate(*FLEET).stdout == done.stdout
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < CPU_SECONDS_MAX


def test_as_json():
    done = simulate("--nodes", 8, "--failures-at", "9h,31h:process", "--duration", "2d", "--seeds", 2, "--json", "--repair", "3h")
    assert (done.returncode, done.stderr) == (0, ""), done
    said = json.loads(done.stdout)
    assert [said["version"], said["nodes"], said["spares"], said["duration_seconds"]] == [1, 8, 0, 172800]
    assert list(said["goodput"]) == ["median", "least", "most"]
    assert [one["seed"] for one in said["runs"]] == [1, 2]
    for one in said["runs"]:
        assert (one["failures"], one["restarts"], one["ended"]) == (2, 2, None)
        assert sum(one["shares"].values()) == pytest.approx(1)
        assert one["goodput"] == one["shares"]["training"]
        assert one["shares"]["no_machine"] == pytest.approx(3 / 48, abs=0.001) and one["longest_wait_seconds"] > 3 * 3600 - 20
    assert said["changes"][0] == {"flag": "--spares 1", "gain_points": pytest.approx(100 * 3 / 48, abs=0.1)}


def test_a_run_that_ends_too_early_is_told():
    done = simulate("--nodes", 4, "--failures-at", "5h:process,6h:process", "--max-restarts", 1, "--seeds", 1)
    assert "1 of 1 runs ended too early, one after 6h: its restarts (--max-restarts) were used up\n" in done.stdout, done


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--nodes 4", "no failures are given; add --mtbf TIME or --failures-at TIME,..."),
        ("--mtbf 4h", "--nodes is missing; say how many machines the run uses"),
        ("--nodes 0 --mtbf 4h", "--nodes '0' is not a whole number from 1 to 10000"),
        ("--nodes 4 --mtbf 4x", "--mtbf '4x' is not a number of seconds above 0 and up to 31536000000"),
    ],
)
def test_a_wrong_line_is_one_sentence(line, sentence):
    done = simulate(*line.split())
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"ddprun: {sentence}\n")


# ---- Real runs

STEP_S, START_S, KEPT_S, LEASE_S, LAST_CALL_S = 0.1, 1.0, 0.2, 2, 2


@dataclasses.dataclass
class Case:
    """`faults`: (second, what), of `process`, which kills the last rank's, or `machine`, which kills the last node."""

    nodes: int
    faults: list
    spares: int = 0
    nodes_min: int = 0
    checkpoint_steps: int = 40
    checkpoint_s: float = 0.4
    repair_s: float = 0  # 0: never
    keep: bool = False
    seconds: float = 60


CASES = {
    "processes": Case(2, [(9, "process"), (23, "process")]),
    "spare": Case(3, [(12, "machine")], spares=1),
    "repair": Case(2, [(10, "machine")], repair_s=8),
    "shrinks": Case(3, [(11, "machine")], nodes_min=2),
    "kept": Case(3, [(8, "process"), (16, "machine"), (28, "process")], spares=1, checkpoint_steps=20, keep=True),
}


class Job:
    def __init__(self, case, folder):
        self.case, self.folder, self.nodes = case, folder, []
        flags = ["ddprun-rendezvous", "--port", "0", "--event-log", folder / "events"]
        self.service = start([BIN / flags[0], *flags[1:]])
        self.endpoint = self.service.stdout.readline().split()[-1]
        for _ in range(case.nodes):
            self.add()
        wait_for("a step", lambda: self.trains_in(1))
        for _ in range(case.spares):
            spare = self.add()
            next(line for line in spare.stderr if "standing by as a spare" in line)

    def add(self):
        case = self.case
        nodes = f"{case.nodes_min or case.nodes}:{case.nodes}"
        flags = ["--nnodes", nodes, "--rdzv-endpoint", self.endpoint, "--rdzv-id", "job", "--max-restarts", 9, "--lease", LEASE_S]
        flags += ["--last-call", LAST_CALL_S, "--spares", int(case.keep), "--verdict-file", self.folder / f"verdict{len(self.nodes)}"]
        trainer = [TRAINER, self.folder, STEP_S, case.checkpoint_steps, case.checkpoint_s, START_S, *["keep"] * case.keep]
        self.nodes.append(start([DDPRUN, *flags, *trainer], env=clean_environment(PYTHON_EXEC=sys.executable)))
        return self.nodes[-1]

    def trains_in(self, number):
        file = self.folder / f"round-{number}"
        return file.exists() and any(file.read_bytes())

    def is_between_checkpoints(self):
        """Just before or after one, a millisecond decides about a whole interval."""
        newest = max(self.folder.glob("round-*"), key=lambda path: int(path.name[6:]))
        steps = max(struct.unpack("16q", newest.read_bytes()))
        return 0.3 < steps % self.case.checkpoint_steps / self.case.checkpoint_steps < 0.7

    def events(self, name):
        lines = [json.loads(line) for line in (self.folder / "events").read_text().splitlines()]
        return [line["monotonic"] for line in lines if line["event"] == name]

    def worker_of(self, node):
        """Its only one."""
        for pid in tree_of(node.pid):
            with contextlib.suppress(OSError):
                if TRAINER.name in pathlib.Path(f"/proc/{pid}/cmdline").read_text() and tree_of(pid) == [pid]:
                    environ = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
                    if b"\0RANK=" in environ:
                        return pid
        raise AssertionError("the worker does not run")

    def fail(self, what):
        # Not the first node: it is the one that stays.
        node = self.nodes[1]
        if what == "process":
            return os.kill(self.worker_of(node), signal.SIGKILL)
        # All that it has at one moment, as power does it: none of them tells the service.
        pids = tree_of(node.pid)
        for send in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, send)
        self.nodes.remove(node)
        node.communicate()


def run_with_faults(case, folder):
    """What the verdict says that the time was spent on, how long the run took by the service's events, and when its faults were."""
    job = Job(case, folder)
    begun = job.events("round.started")[0]
    at = []
    plan = sorted([*case.faults, (case.seconds, "done")])
    while plan:
        second, what = heapq.heappop(plan)
        time.sleep(max(0, begun + second - time.monotonic()))
        if what == "done":
            (folder / "done").touch()
        elif what == "repaired":
            job.add()
        else:
            wait_for("steps since a checkpoint", job.is_between_checkpoints)
            now = time.monotonic() - begun
            at.append(f"{now:.3f}" + ":process" * (what == "process"))
            job.fail(what)
            if what == "machine" and case.repair_s:
                heapq.heappush(plan, (now + case.repair_s, "repaired"))
    ends = finish_all(job.nodes)
    assert all(code == 0 for code, _, _ in ends), ends
    job.service.terminate()
    seconds = job.events("run.finished")[0] - begun
    verdict = json.loads((folder / "verdict0").read_text())
    return verdict["rank_seconds"], seconds, at


@pytest.mark.nightly
@pytest.mark.parametrize("name", CASES)
def test_real_runs_have_the_goodput_that_is_foretold(name, tmp_path):
    case = CASES[name]
    spent, seconds, at = run_with_faults(case, tmp_path)
    real = spent["training"] / (case.nodes * seconds)
    start_s = spent["start"] / case.nodes  # as a user measures it
    flags = ["--nodes", case.nodes, "--spares", case.spares, "--min-nodes", case.nodes_min or case.nodes, "--failures-at", ",".join(at)]
    flags += ["--duration", f"{seconds:.3f}", "--checkpoint", case.checkpoint_steps * STEP_S, "--checkpoint-cost", case.checkpoint_s]
    flags += ["--repair", case.repair_s or "1h", "--restart-cost", f"{start_s:.3f}", "--lease", LEASE_S, "--last-call", LAST_CALL_S]
    flags += ["--in-place", "--in-place-cost", KEPT_S] if case.keep else []
    said = simulate(*flags, "--json")
    assert said.returncode == 0, said
    foretold = json.loads(said.stdout)["goodput"]["median"]
    print(f"{name}: real {100 * real:.1f} %, foretold {100 * foretold:.1f} %, start {start_s:.2f} s, {spent}")
    assert abs(real - foretold) < 0.03, (real, foretold, spent, said.stdout)
