# SPDX-License-Identifier: Apache-2.0
"""What a Python worker finds under torchrun and under ddprun, field by field: flags, variables, and all that a process
inherits. What is not the same is a row of launcher/TORCHRUN.md, and each row is a difference that is really there.
torchrun's side is stored for several versions (torchrun_answers.py), and held against torchrun at night."""

import os
import re

import pytest
from conftest import DDPRUN, REPO, clean_environment, processes_of_this_session, run
from side_by_side import Runs, differences, fields, under_torchrun
from torch_versions import pythons
from torchrun_answers import (
    STORED,
    VERSIONS,
    Answers,
    flags_of_help,
    help_of,
    long_flags,
    of_all_versions,
    with_python,
    without_launcher,
)
from torchrun_cases import CASES, STATED
from torchrun_covers import FLAGS, LATER_FLAGS, LAUNCH_FLAGS, READ, SET, WRONG, case_named

LETTERS = {"--redirects": "-r", "--tee": "-t", "--module": "-m"}
# What all workers of a round must agree on, or they do not meet.
OF_ALL = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "WORLD_SIZE",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "DDPRUN_ROUND",
)
TEXT = (REPO / "launcher" / "TORCHRUN.md").read_text()
PAGE = " ".join(TEXT.split())


@pytest.fixture(scope="session")
def runs(tmp_path_factory, request):
    runs = Runs(tmp_path_factory.mktemp("runs"), of_all_versions)
    parameters = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    runs.announce(given["case"] for given in parameters if "case" in given)
    yield runs
    runs.close()


def both(runs, case, version):
    ours, theirs = runs(case, version)
    if theirs is None:
        pytest.skip("none of the listed versions is installed here")  # for a case that depends on the number of CPUs
    return ours, theirs


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_workers_find_the_same(runs, case, version):
    ours, theirs = both(runs, case, version)
    nodes = len(case.nodes)
    assert theirs.codes == [0] * nodes, theirs.errors
    assert ours.codes == [0] * nodes, ours.errors
    if case.workers is not None:
        assert sorted(ours.workers) == list(range(case.workers))
    for name, value in case.expected.items():
        found = {repr(fields(w, s).get(name)) for s in (ours, theirs) for ws in s.workers.values() for w in ws}
        assert found == {repr(value)}, name
    assert {len(workers) for workers in ours.workers.values()} == {case.starts}
    for start in range(case.starts):
        alike = [tuple(ws[start]["environment"].get(name) for name in OF_ALL) for ws in ours.workers.values()]
        assert len(set(alike)) == 1, alike
    surprises = [
        difference
        for difference in differences(ours, theirs)
        if case.compares(difference.field) and not any(stated.covers(difference) for stated in STATED)
    ]
    assert not surprises, "\n".join(map(str, surprises))


# Values that torchrun chooses itself, and differently in each run.
CHOSEN = re.compile(r"environment\.(MASTER_PORT|TORCHELASTIC_RUN_ID|TORCHELASTIC_ERROR_FILE|TORCHELASTIC_TIMER_FILE)|stdin")


INSTALLED = [version for version in VERSIONS if version in pythons()]


@pytest.mark.nightly
@pytest.mark.parametrize("version", INSTALLED)
@pytest.mark.parametrize("answered", CASES, ids=str)
def test_the_stored_answers_are_those_of_torchrun(tmp_path, answered, version):
    answers = Answers(version)
    live = under_torchrun(with_python(answered, answers.python()), tmp_path / "torchrun")
    if os.environ.get("DDPRUN_REFRESH_ANSWERS"):
        answers.refresh(answered, live, tmp_path / "refreshed")
    stored = answers.seen(answered, *without_launcher(answered, tmp_path / "alone", answers.python()), answers.python())
    assert stored is not None, f"{answers.file} has no answers of this case and machine: DDPRUN_REFRESH_ANSWERS=1 writes them"
    assert stored.codes == live.codes, live.errors
    assert [d for d in differences(stored, live) if answered.compares(d.field) and not CHOSEN.fullmatch(d.field)] == []


@pytest.mark.nightly
@pytest.mark.parametrize("version", INSTALLED)
def test_the_stored_help_is_that_of_torchrun(version):
    answers = Answers(version)
    assert answers.stored["help"] == help_of(answers.python())


def test_a_restart_has_another_port(runs):
    """torchrun's workers find the keys of the round before in their store."""
    ours, theirs = both(runs, case_named("a restart of two nodes"), STORED[-1])
    ports = [{worker["environment"]["MASTER_PORT"] for worker in seen.workers[0]} for seen in (ours, theirs)]
    assert [len(of_side) for of_side in ports] == [2, 1]


def seen_in_all_versions(runs):
    """(case, ours, theirs)"""
    sides = [(case, *runs(case, version)) for case in CASES for version in VERSIONS]
    return [(case, ours, theirs) for case, ours, theirs in sides if theirs is not None]


def test_every_stated_difference_is_on_the_page_and_there(runs):
    found = [d for case, *sides in seen_in_all_versions(runs) for d in differences(*sides) if case.compares(d.field)]
    for stated in STATED:
        assert stated.words in PAGE, f"launcher/TORCHRUN.md does not say: {stated.words}"
        if stated.everywhere:
            assert any(stated.covers(difference) for difference in found), f"nothing differs so: {stated.field}"


def test_every_flag_of_torchrun_has_a_case():
    assert long_flags(Answers("2.11.0").stored["help"]) == set(FLAGS), "torchrun's own list of flags against torchrun_covers.py"
    assert long_flags(Answers(STORED[-1]).stored["help"]) == {*FLAGS, *LATER_FLAGS}
    assert not FLAGS.keys() & LATER_FLAGS.keys()


# What a flag that takes a value is given. {}: any of the values that the help lists.
VALUES = {
    "--nnodes": "1", "--nproc-per-node": "1", "--rdzv-backend": "c10d", "--rdzv-endpoint": "127.0.0.1:0", "--rdzv-id": "job",
    "--rdzv-conf": "timeout=9", "--max-restarts": "1", "--monitor-interval": "0.5", "--event-log-handler": "console", "--role": "trainer",
    "--log-dir": "/dev/null", "--redirects": "3", "--tee": "0:1", "--local-ranks-filter": "0", "--duplicate-stdout-filters": "a",
    "--duplicate-stderr-filters": "a", "--node-rank": "0", "--master-addr": "127.0.0.1", "--master-port": "29500",
    "--local-addr": "127.0.0.1", "--logs-specs": "default", "--signals-to-handle": "SIGTERM", "--shutdown-timeout": "30",
    "--log-line-prefix-template": "[${rank}]:", "-r": "3", "-t": "3",
}


@pytest.mark.parametrize("version", STORED)
def test_every_flag_of_torchruns_help_is_accepted(version):
    flags = flags_of_help(Answers(version).stored["help"])
    assert len(flags) > 50, flags
    for flag, word in flags.items():
        values = re.fullmatch(r"\{(.*)\}", word)
        name = flag if flag in VALUES else flag.replace("_", "-")
        for value in values[1].split(",") if values else [VALUES[name]] if word else [None]:
            given = [flag, *([value] if word else [])]
            done = run([DDPRUN, "--dry-run", *given, "/bin/true"])
            assert done.returncode == 0, (given, done.stderr)


@pytest.mark.parametrize("flag", [*FLAGS, *LAUNCH_FLAGS, *LATER_FLAGS])
def test_the_cover_of_a_flag_is_there(flag):
    covers = {**FLAGS, **LAUNCH_FLAGS, **LATER_FLAGS}[flag]
    assert f"`{flag}`" in PAGE, f"launcher/TORCHRUN.md has no row of {flag}"
    assert covers
    for cover in covers:
        if "::" in cover:
            has_test(cover, flag)
        else:
            case = case_named(cover)
            variable = "PET_" + flag.lstrip("-").replace("-", "_").upper()
            said = [*case.meet, *case.flags, *(word for node in case.nodes for word in node)]
            names = (flag, LETTERS.get(flag, flag))
            assert variable in case.variables or any(word.split("=")[0] in names for word in said), cover


@pytest.mark.parametrize("variable", [*SET, *READ])
def test_the_cover_of_a_variable_is_there(variable):
    assert f"`{variable}`" in PAGE, f"launcher/TORCHRUN.md has no row of {variable}"
    for cover in {**SET, **READ}[variable]:
        if "::" in cover:
            has_test(cover, variable)
        elif variable in READ:
            assert any(
                name.startswith(variable.replace("<FLAG>", "").rstrip("*")) for name in case_named(cover).variables
            ), cover
        else:
            case_named(cover)


def has_test(cover, subject):
    """`test_x.py::test_y` is there and says the name of what it covers."""
    file, test = cover.split("::")
    text = (REPO / "tests" / "e2e" / file).read_text()
    assert f"def {test}(" in text, f"{subject}: there is no {cover}"
    # In the text of the file: a test may take its flags from a table beside it.
    said = subject.replace("<FLAG>", "")
    assert any(name in text for name in (said, f'"{LETTERS.get(said, said)}"')), f"{file} does not say {subject}"


def rows(heading):
    """The first column of the tables under a heading of the page."""
    section = TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    cells = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("|")]
    return [cell for cell in cells if cell not in ("", "variable", "torchrun") and set(cell) != {"-"}]


def test_the_page_says_nothing_that_nobody_checks():
    for row in rows("Defects of torchrun that ddprun does not have"):
        assert sum(row.startswith(begin) for begin in WRONG) == 1, f"torchrun_covers.py has no cover of: {row}"
    assert len(rows("Defects of torchrun that ddprun does not have")) == len(WRONG)
    for begin, covers in WRONG.items():
        for cover in covers:
            has_test(cover, "") if "::" in cover else case_named(cover)
    stated = [name for name in ("DDPRUN_TOKEN",) if any(re.fullmatch(s.field, f"environment.{name}") for s in STATED)]
    of_workers, of_launcher = "Environment variables of the workers", "Environment variables that the launcher reads"
    for heading, known in ((of_workers, [*SET, *stated]), (of_launcher, READ)):
        assert set(re.findall(r"`([^`]+)`", " ".join(rows(heading)))) == set(known), heading


def test_every_variable_that_workers_find_has_a_case(runs):
    """Those of the workers that their launcher was not started with, or with another value."""
    found = set()
    for case, *sides in seen_in_all_versions(runs):
        if case.before:
            continue  # a shell sets variables of its own
        for side in sides:
            given = clean_environment(**case.variables)
            for workers in side.workers.values():
                environment = workers[0]["environment"]
                found |= {
                    name
                    for name, value in environment.items()
                    if given.get(name) != value and "FOLDER" not in given.get(name, "")
                }
    # What only another test can show: on machines with other devices than this one's.
    elsewhere = {name for name, covers in SET.items() if all("::" in cover for cover in covers)}
    assert found == set(SET) - elsewhere, "what launchers set against torchrun_covers.py"


def test_nothing_is_left_behind():
    assert not processes_of_this_session()
