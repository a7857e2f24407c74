# SPDX-License-Identifier: Apache-2.0
"""What workers find under torchrun, from torchrun_answers/VERSION.json: to start torchrun itself takes seconds for each node.

A file has torchrun's --help, and of each case of torchrun_cases.py the fields in which a worker of that torchrun differs from the same
program started without a launcher. That program is run here (one process), and the stored fields are put over its own: what depends
on the machine is that of this one. nightly.torchrun_parity holds the files against the torchruns that are installed; to write them
anew, or that of another version (an empty file of its name):

    DDPRUN_NIGHTLY=1 DDPRUN_REFRESH_ANSWERS=1 python -m pytest tests/e2e/test_torchrun_parity.py
"""

import dataclasses
import json
import os
import re
import subprocess
import sys

from conftest import clean_environment
from side_by_side import HERE, PROBE, Seen, Side, fields, under_torchrun
from torch_versions import OWN, numbers, pythons

FOLDER = HERE / "torchrun_answers"
STORED = sorted((file.stem for file in FOLDER.glob("*.json")), key=numbers)
VERSIONS = [*STORED, *([] if OWN in STORED else [OWN])]


def places(python):
    """By the names of the folder, the tests and the Python of whoever reads them; the longest first."""
    return {"<TESTS>": str(HERE), "<PYTHON>": python}


def cpus_of(case):
    """How many there are, where the number of workers depends on it."""
    return len(os.sched_getaffinity(0)) if any(flag.endswith(("=auto", "=cpu")) for flag in case.flags) else None


def with_python(case, python):
    """The case under the torchrun of that Python."""
    def words(of):
        return tuple(python if word == sys.executable else word for word in of)

    return dataclasses.replace(case, torchrun=words(case.torchrun), program=words(case.program))


def without_launcher(case, folder, python=sys.executable):
    """The probe by itself, with the variables and the shell of the case: its side and what it found."""
    command = (*case.before, python, "-u")
    variables = {**case.variables, "RANK": "0"}
    alone = dataclasses.replace(case, flags=(), meet=(), nodes=((),), arguments=(), before=(), program=(str(PROBE), "FOLDER"), variables=variables)
    seen = Side(alone, command, folder).finish()
    assert seen.codes == [0], seen.errors
    return seen, fields(seen.workers[0][0], seen)


def named(value, python):
    text = json.dumps(value)
    for name, place in places(python).items():
        text = text.replace(place, name)
    return json.loads(text)


def placed(value, seen, python):
    text = json.dumps(value)
    for name, place in places(python).items():
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


def answer_of(case, seen, alone, python):
    """What is stored of a case that torchrun has run; null: a field that its worker has not."""
    workers = {}
    for rank, starts in sorted(seen.workers.items()):
        all_fields = [fields(worker, seen) for worker in starts]
        workers[str(rank)] = [
            {name: named(of.get(name), python) for name in sorted(of.keys() | alone.keys()) if of.get(name) != alone.get(name)}
            for of in all_fields
        ]
    return {"cpus": cpus_of(case), "codes": seen.codes, "workers": workers}


def help_of(python):
    """torchrun's, in lines of the same length everywhere."""
    environment = clean_environment(COLUMNS="100", NO_COLOR="1")
    command = [python, "-c", "from torch.distributed.run import get_args_parser as p; q = p(); q.prog = 'torchrun'; q.print_help()"]
    return subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, check=True, timeout=120).stdout


class Answers:
    def __init__(self, version):
        self.version = version
        self.file = FOLDER / f"{version}.json"
        text = self.file.read_text() if self.file.exists() else ""
        self.stored = json.loads(text) if text else {"torch": version, "help": "", "cases": {}}

    def python(self):
        """That of this version; None: it is not installed here."""
        return pythons().get(self.version)

    def seen(self, case, side, alone, python=sys.executable):
        """What torchrun's workers find, beside the probe by itself in that Python; None where only torchrun itself can tell."""
        answer = self.stored["cases"].get(case.name)
        if answer is None or answer["cpus"] != cpus_of(case):
            return None
        workers = {
            int(rank): [
                nested({name: value for name, value in placed({**alone, **start}, side, python).items() if start.get(name, 0) is not None})
                for start in starts
            ]
            for rank, starts in answer["workers"].items()
        }
        return Seen(answer["codes"], [], [], workers, side.folder, side.port)

    def refresh(self, case, seen, folder):
        _, alone = without_launcher(case, folder, self.python())
        self.stored["cases"][case.name] = answer_of(case, seen, alone, self.python())
        self.stored["help"] = help_of(self.python())
        lines = [f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in sorted(self.stored["cases"].items())]
        head = f'{{"torch": {json.dumps(self.version)},\n"help": {json.dumps(self.stored["help"])},\n"cases": {{\n'
        self.file.write_text(head + ",\n".join(lines) + "\n}}\n")


def of_all_versions(case, folder):
    """{version: what torchrun's workers find}. None: its file does not know the case, and it is not installed."""
    side, alone = without_launcher(case, folder / "alone")
    found = {}
    for version in VERSIONS:
        answers = Answers(version)
        found[version] = answers.seen(case, side, alone)
        if found[version] is None and answers.python():
            found[version] = under_torchrun(with_python(case, answers.python()), folder / f"torchrun-{version}")
    return found


def flags_of_help(text):
    """{flag: the word for its value} of all spellings in the help's list of options; "" for a flag without a value."""
    found = {}
    for line in text.splitlines():
        entry = re.match(r"  (-{1,2}[a-z].*?)(?:  .*)?$", line)
        for option in entry[1].split(", ") if entry else ():
            flag, _, value = option.partition(" ")
            found[flag] = value
    return {flag: value for flag, value in found.items() if flag not in ("-h", "--help")}


def long_flags(text):
    """The names with `-` that test_torchrun_parity.py knows flags by."""
    return {flag for flag in flags_of_help(text) if flag.startswith("--") and "_" not in flag}
