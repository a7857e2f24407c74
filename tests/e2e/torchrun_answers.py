# SPDX-License-Identifier: Apache-2.0
"""What workers find under torchrun, from torchrun_answers.json: to start torchrun itself takes seconds for each node.

The file has, of each case of torchrun_cases.py, the fields in which a worker of torchrun differs from the same program started
without a launcher. That program is run here (one process), and the stored fields are put over its own: what depends on the
machine is that of this one. nightly.torchrun_parity holds the file against torchrun; to write it anew after another version:

    DDPRUN_NIGHTLY=1 DDPRUN_REFRESH_ANSWERS=1 python -m pytest tests/e2e/test_torchrun_parity.py
"""

import dataclasses
import importlib.metadata
import json
import os
import re
import sys

from side_by_side import HERE, PROBE, Seen, Side, fields

FILE = HERE / "torchrun_answers.json"
VERSION = importlib.metadata.version("torch").partition("+")[0]
# By the names of the folder, the tests and the Python of whoever reads them; the longest first.
PLACES = {"<TESTS>": str(HERE), "<PYTHON>": sys.executable}


def cpus_of(case):
    """How many there are, where the number of workers depends on it."""
    return len(os.sched_getaffinity(0)) if any(flag.endswith(("=auto", "=cpu")) for flag in case.flags) else None


def without_launcher(case, folder):
    """The probe by itself, with the variables and the shell of the case: its side and what it found."""
    command = (*case.before, sys.executable, "-u")
    variables = {**case.variables, "RANK": "0"}
    alone = dataclasses.replace(case, flags=(), meet=(), nodes=((),), arguments=(), before=(), program=(str(PROBE), "FOLDER"), variables=variables)
    seen = Side(alone, command, folder).finish()
    assert seen.codes == [0], seen.errors
    return seen, fields(seen.workers[0][0], seen)


def named(value):
    text = json.dumps(value)
    for name, place in PLACES.items():
        text = text.replace(place, name)
    return json.loads(text)


def placed(value, seen):
    text = json.dumps(value)
    for name, place in PLACES.items():
        text = text.replace(name, place)
    for name, place in (("FOLDER", str(seen.folder)), ("PORT", seen.port)):
        text = re.sub(rf"\b{name}\b", place, text)
    return json.loads(text)


def nested(flat_fields):
    found = {}
    for name, value in flat_fields.items():
        outer, dot, inner = name.partition(".")
        if dot:
            found.setdefault(outer, {})[inner] = value
        else:
            found[outer] = value
    return found


def answer_of(case, seen, alone):
    """What is stored of a case that torchrun has run; null: a field that its worker has not."""
    workers = {}
    for rank, starts in sorted(seen.workers.items()):
        all_fields = [fields(worker, seen) for worker in starts]
        workers[str(rank)] = [
            {name: named(of.get(name)) for name in sorted(of.keys() | alone.keys()) if of.get(name) != alone.get(name)}
            for of in all_fields
        ]
    return {"cpus": cpus_of(case), "codes": seen.codes, "workers": workers}


class Answers:
    def __init__(self):
        self.stored = json.loads(FILE.read_text()) if FILE.exists() else {"torch": "", "cases": {}}

    def seen(self, case, folder):
        """What torchrun's workers find; None where only torchrun itself can tell."""
        answer = self.stored["cases"].get(case.name)
        if answer is None or self.stored["torch"] != VERSION or answer["cpus"] != cpus_of(case):
            return None
        side, alone = without_launcher(case, folder)
        workers = {
            int(rank): [
                nested({name: value for name, value in placed({**alone, **start}, side).items() if start.get(name, 0) is not None})
                for start in starts
            ]
            for rank, starts in answer["workers"].items()
        }
        return Seen(answer["codes"], [], [], workers, side.folder, side.port)

    def refresh(self, case, seen, folder):
        _, alone = without_launcher(case, folder)
        if self.stored["torch"] != VERSION:
            self.stored = {"torch": VERSION, "cases": {}}
        self.stored["cases"][case.name] = answer_of(case, seen, alone)
        lines = [f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in sorted(self.stored["cases"].items())]
        FILE.write_text(f'{{"torch": {json.dumps(VERSION)}, "cases": {{\n' + ",\n".join(lines) + "\n}}\n")
