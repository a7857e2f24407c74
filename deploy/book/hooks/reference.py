# SPDX-License-Identifier: Apache-2.0
"""The reference: the --help of the programs as tables, and the metrics as the sources define them."""

import functools
import os
import pathlib
import re
import subprocess

from documents import REPO, slug

METRIC_SOURCES = ("rendezvous/observe/metrics.cc", "launcher/agent/agent_observer.cc")
# A flag's line: two spaces, the flag with its value, and after two more spaces what it does.
# (CLI11 leaves one space after a name that is as long as its column.)
FLAG = re.compile(r"^  (-\S.*?)(?:(?:(?<=\{false\}) |(?<=\]) (?=[a-z])|  +)(\S.*))?$")
COMMAND = re.compile(r"^  ([a-z]\S*(?: [A-Z\[]\S*)?)  +(\S.*)$")
MORE = re.compile(r"^ {10,}(\S.*)$")


@functools.cache
def help_of(*command):
    folder = pathlib.Path(os.environ.get("DDPRUN_BOOK_PROGRAMS", REPO / "build" / "bin"))
    done = subprocess.run([folder / command[0], *command[1:]], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def parse(text):
    """[title, lines of prose, [(flag or command, meaning)]] for each part of a --help."""
    parts = [["", [], []]]
    for line in text.splitlines():
        more = MORE.match(line)
        if found := FLAG.match(line) or COMMAND.match(line):
            parts[-1][2].append([found.group(1), found.group(2) or ""])
        elif more and parts[-1][2]:
            parts[-1][2][-1][1] += " " + more.group(1)
        elif line.endswith(":") and not line.startswith(" "):
            parts.append([line[:-1], [], []])
        else:
            parts[-1][1].append(line)
    return parts


def cell(text):
    """Words of a --help in a table: nothing of it is Markdown or HTML."""
    return re.sub(r"([\\`*_{}\[\]<>|])", r"\\\1", text.strip())


def named(entry):
    """The flag, as code, with an anchor of its long name."""
    long = re.search(r"--[a-z0-9-]+", entry)
    code = "`" + entry.removesuffix("{false}") + "`"
    return f'<span id="{long.group(0)}"></span>{code}' if long else code


def table(rows):
    lines = ["| | |", "|---|---|", *(f"| {named(entry)} | {cell(meaning)} |" for entry, meaning in rows)]
    return "\n".join(lines) + "\n"


def help_as_markdown(command, depth="##"):
    """`command`: the words of a call that prints help, such as "ddprun --help all"."""
    text = []
    for title, prose, rows in parse(help_of(*command.split())):
        if title and (rows or "".join(prose).strip()):
            text.append(f"{depth} {title}\n")
        words = "\n".join(prose).strip()
        if words:
            text.append(f"```text\n{words}\n```\n")
        if rows:
            text.append(table(rows))
    return "\n".join(text)


def joined_literals(source):
    """C++ source with the string literals joined that follow each other."""
    return re.sub(r'"\s*\n?\s*"', "", source)


def metrics():
    """{name: help} of every metric that ddprun and ddprun-rendezvous have."""
    found = {}
    for path in METRIC_SOURCES:
        text = joined_literals((REPO / path).read_text())
        found.update(re.findall(r'"((?:ddprun|process)_[a-z_]+)",\s*"([^"]+)"', text))
    return found


def metrics_as_markdown():
    lines = ["| metric | type | what it is |", "|---|---|---|"]
    for name, meaning in sorted(metrics().items()):
        kind = "counter" if name.endswith("_total") else "gauge"
        lines.append(f'| <span id="{slug(name)}"></span>`{name}` | {kind} | {cell(meaning)} |')
    return "\n".join(lines) + "\n"
