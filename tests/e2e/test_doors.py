# SPDX-License-Identifier: Apache-2.0
"""rendezvous/security/DOORS.md is complete and true: every door in the source has a row, and every limit its figure."""

import pathlib
import re

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
DOORS = (REPO / "rendezvous" / "security" / "DOORS.md").read_text()
ROOMS = ("launcher", "rendezvous", "worker", "proto")
# What makes a process reachable for another one.
OPENS = re.compile(r"\b(?:ListenOn|ListenOnPath|BindDatagramSocket)\(|\blisten\(|StartMetricsFunction>|\bmg_start\(|\.bind\(")
# The functions themselves.
THEMSELVES = {
    "rendezvous/base/addresses.cc",
    "rendezvous/base/addresses.h",
    "rendezvous/base/datagram_socket.cc",
    "rendezvous/base/datagram_socket.h",
}
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "ms": 1, "s": 1000}


def code(path):
    return "\n".join(line.split("//")[0] for line in path.read_text().splitlines())


def sources():
    for room in ROOMS:
        yield from (path for kind in ("*.cc", "*.h", "*.py") for path in (REPO / room).rglob(kind))


def opened():
    paths = (path for path in sources() if OPENS.search(code(path)))
    return {str(path.relative_to(REPO)) for path in paths} - THEMSELVES


CONSTANT = re.compile(r"(?:static|inline) constexpr ([\w:]+) (k\w+)\s*(.*?);")


def limits():
    """The constants of every header: type and value as C++ has them."""
    texts = (path.read_text() for path in sources() if path.suffix == ".h")
    return {name: (kind, value) for text in texts for kind, name, value in CONSTANT.findall(text)}


def value_of(name, known):
    """In bytes, pieces or milliseconds."""
    kind, text = known[name]
    text = text.strip("= {}").replace("'", "").replace("std::size_t{", "").replace("}", "")
    text = re.sub(r"\bk[A-Z]\w+", lambda other: str(value_of(other[0], known)), re.sub(r"(\d)u\b", r"\1", text))
    assert re.fullmatch(r"[\d\s*+<()-]+", text), (name, text)
    return eval(text) * (1000 if "seconds" in kind and "milli" not in kind else 1)


def test_every_door_has_a_row():
    named = {path for path in re.findall(r"`([\w/]+\.(?:cc|py))`", DOORS) if path.split("/")[0] in ROOMS}
    assert opened() == named, "look at what it allows, and give it a row in rendezvous/security/DOORS.md"


def test_no_row_has_an_empty_field():
    rows = [line for line in DOORS.splitlines() if line.startswith("| ") and not line.startswith("| |")]
    assert len(rows) > 20
    for row in rows:
        assert all(field.strip() for field in row.strip("|").split("|")), row


FIGURES = re.findall(r"`(k[A-Z]\w+)` ([\d]+)(?: (KiB|MiB|ms|s)\b)?", DOORS)


@pytest.mark.parametrize(("name", "figure", "unit"), FIGURES, ids=[name for name, _, _ in FIGURES])
def test_each_limit_has_its_figure(name, figure, unit):
    assert value_of(name, limits()) == int(figure) * UNITS[unit], name


def test_each_limit_is_followed_by_its_figure():
    assert len(re.findall(r"`k[A-Z]\w+`", DOORS)) == len(FIGURES) > 30
