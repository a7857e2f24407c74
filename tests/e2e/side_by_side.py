# SPDX-License-Identifier: Apache-2.0
"""One command line under torchrun and under ddprun, and what the Python workers of each found, field by field."""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import time

from conftest import DDPRUN, TORCHRUN, clean_environment, free_port

HERE = pathlib.Path(__file__).resolve().parent
PROBE = HERE / "parity_probe.py"
DEADLINE = 180
AT_ONCE = 2  # torchrun's own start is two seconds of a processor

# Where the nodes meet. PORT and FOLDER are other ones on each side.
STATIC = ("--master-addr=127.0.0.1", "--master-port=PORT")
C10D = ("--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:PORT", "--local-addr=127.0.0.1")
NOT_GIVEN = ("PYTEST_CURRENT_TEST", "PYTHONUNBUFFERED")
TORCH_LAUNCH = [sys.executable, "-W", "ignore", "-m", "torch.distributed.launch"]


@dataclasses.dataclass(frozen=True)
class Case:
    """A command line: its flags, those of each node, and the program's arguments. `expected` is what has to be in the
    fields of every worker, lest both be wrong in the same way."""

    name: str
    flags: tuple = ()
    meet: tuple = STATIC
    nodes: tuple = ((),)
    arguments: tuple = ()
    variables: dict = dataclasses.field(default_factory=dict)
    program: tuple = (str(PROBE), "FOLDER")
    before: tuple = ()  # what the launcher itself is started by
    torchrun: tuple = tuple(TORCHRUN)
    workers: int | None = None  # in all nodes; None: any number
    starts: int = 1  # of each worker
    only: tuple = ()  # the fields that are compared, or how they begin; none: all
    expected: dict = dataclasses.field(default_factory=dict)

    def __str__(self):
        return self.name

    def compares(self, field):
        return not self.only or field.startswith(self.only)


@dataclasses.dataclass
class Seen:
    """`workers[rank]`: of each of that rank's workers, in the order of their start, its fields."""

    codes: list
    outs: list
    errors: list
    workers: dict
    folder: pathlib.Path
    port: str


class Side:
    """The nodes of a case under one launcher."""

    def __init__(self, case, launcher, folder):
        self.folder = folder
        folder.mkdir(parents=True)
        self.port = str(free_port())
        self.environment = clean_environment(**{n: self.fill(v) for n, v in case.variables.items()})
        for name in NOT_GIVEN:
            self.environment.pop(name, None)
        self.nodes = [self._start(case, launcher, node, flags) for node, flags in enumerate(case.nodes)]

    def fill(self, word):
        return str(word).replace("FOLDER", str(self.folder)).replace("PORT", self.port)

    def _start(self, case, launcher, node, flags):
        words = [*case.before, *launcher, *case.meet, *case.flags, *flags, *case.program, *case.arguments]
        stdin = self.folder / "stdin"
        stdin.write_text("said to it\n")
        with (
            stdin.open() as read,
            (self.folder / f"out.{node}").open("w") as out,
            (self.folder / f"err.{node}").open("w") as err,
        ):
            return subprocess.Popen(
                [self.fill(word) for word in words],
                env=self.environment,
                cwd=self.folder,
                stdin=read,
                stdout=out,
                stderr=err,
            )

    def finish(self):
        end = time.monotonic() + DEADLINE
        late = []
        for number, node in enumerate(self.nodes):
            try:
                node.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()
                late.append(number)
        errors = [(self.folder / f"err.{node}").read_text() for node in range(len(self.nodes))]
        assert not late, f"nodes {late} had not ended after {DEADLINE} s: {errors}"
        return Seen(
            [node.returncode for node in self.nodes],
            [(self.folder / f"out.{node}").read_text() for node in range(len(self.nodes))],
            errors,
            self._workers(),
            self.folder,
            self.port,
        )

    def _workers(self):
        workers = {}
        for path in sorted(self.folder.glob("*-*.json"), key=lambda path: path.stat().st_mtime_ns):
            workers.setdefault(int(path.name.split("-")[0]), []).append(json.loads(path.read_text()))
        return workers

    def wait_for_files(self, pattern, count):
        """Those of that name, once there are so many."""
        end = time.monotonic() + DEADLINE
        while len(found := sorted(self.folder.glob(pattern))) < count:
            assert time.monotonic() < end, f"there are {found} of {count} {pattern}"
            assert all(node.poll() is None for node in self.nodes), f"a node ended before there were {count} {pattern}"
            time.sleep(0.01)
        return found


def flat(value, name=""):
    """A dictionary of dictionaries as one, with dots in the names."""
    if not isinstance(value, dict):
        return {name: value}
    return {n: v for key, inner in value.items() for n, v in flat(inner, f"{name}.{key}" if name else key).items()}


def in_texts(value, change):
    """With the texts of it changed, and no number: one may happen to be the port."""
    if isinstance(value, dict):
        return {in_texts(name, change): in_texts(one, change) for name, one in value.items()}
    if isinstance(value, list):
        return [in_texts(one, change) for one in value]
    return change(value) if isinstance(value, str) else value


def fields(worker, seen):
    """Of one worker, with the side's own folder and port by their names."""
    filled = {}
    for name, value in flat(worker).items():
        filled[name] = in_texts(value, lambda text: re.sub(rf"\b{seen.port}\b", "PORT", text.replace(str(seen.folder), "FOLDER")))
    return filled


@dataclasses.dataclass(frozen=True)
class Difference:
    where: str
    field: str
    ours: object
    theirs: object


def differences(ours, theirs):
    """What is not the same for the workers of both sides; a field that one of them has not is None there."""
    assert sorted(ours.workers) == sorted(theirs.workers), (sorted(ours.workers), theirs.errors, ours.errors)
    found = []
    for rank in sorted(ours.workers):
        assert len(ours.workers[rank]) == len(theirs.workers[rank]), f"rank {rank}"
        for number, (our, their) in enumerate(zip(ours.workers[rank], theirs.workers[rank])):
            our, their = fields(our, ours), fields(their, theirs)
            where = f"rank {rank}, start {number}"
            found += [
                Difference(where, name, our.get(name), their.get(name))
                for name in sorted(our.keys() | their.keys())
                if our.get(name) != their.get(name)
            ]
    return found


def under_torchrun(case, folder):
    return Side(case, case.torchrun, folder).finish()


class Runs:
    """What became of the cases: each is run once, two at a time, when it is first asked for or announced. `torchruns(case, ours,
    folder)` tells torchrun's side of a case, by its versions (torchrun_answers.py)."""

    def __init__(self, folder, torchruns):
        self._folder = folder
        self._torchruns = torchruns
        self._pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
        self._runs = {}

    def announce(self, cases):
        for case in cases:
            if case.name not in self._runs:
                self._runs[case.name] = self._pool.submit(self._run, case)

    def __call__(self, case, version):
        """(ours, theirs). theirs is None where nobody here can tell it."""
        self.announce([case])
        ours, theirs = self._runs[case.name].result()
        return ours, theirs[version]

    def _run(self, case):
        folder = self._folder / re.sub(r"\W+", "_", case.name)
        ours = Side(case, [DDPRUN], folder / "ddprun").finish()
        return ours, self._torchruns(case, folder)

    def close(self):
        self._pool.shutdown(cancel_futures=True)
