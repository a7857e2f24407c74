# SPDX-License-Identifier: Apache-2.0
"""The reference: the --help of the programs as tables, and the metrics as the sources define them."""

import functools
import html
import os
import pathlib
import re
import subprocess
import textwrap

from documents import REPO, slug

METRIC_SOURCES = ("rendezvous/observe/metrics.cc", "launcher/agent/agent_observer.cc")
# A flag's line: two spaces, the flag with its value, and after two more spaces what it does.
# (CLI11 leaves one space after a name that is as long as its column.)
FLAG = re.compile(r"^  (-\S.*?)(?:(?:(?<=\{false\}) |(?<=\]) (?=[a-z])|  +)(\S.*))?$")
COMMAND = re.compile(r"^  ([A-Za-z]\S*(?: [A-Z\[]\S*)*)  +(\S.*)$")
MORE = re.compile(r"^ {10,}(\S.*)$")


@functools.cache
def help_of(*command):
    folder = pathlib.Path(os.environ.get("DDPRUN_BOOK_PROGRAMS", REPO / "build" / "bin"))
    done = subprocess.run([folder / command[0], *command[1:]], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def parse(text):
    """[title, lines before the rows, [(flag or command, meaning)], lines after them] for each part of a --help."""
    parts = [["", [], [], []]]
    for line in text.splitlines():
        more = MORE.match(line)
        if found := FLAG.match(line) or COMMAND.match(line):
            parts[-1][2].append([found.group(1), found.group(2) or ""])
        elif more and parts[-1][2]:
            parts[-1][2][-1][1] += " " + more.group(1)
        elif line.endswith(":") and not line.startswith(" ") and len(line) < 60:
            parts.append([line[:-1], [], [], []])
        else:
            parts[-1][3 if parts[-1][2] else 1].append(line)
    return parts


def cell(text):
    """Words of a --help in a table: nothing of it is Markdown or HTML."""
    return re.sub(r"([\\`*_{}\[\]|])", r"\\\1", html.escape(text.strip(), quote=False))


def long_name(entry):
    found = re.search(r"--[a-z0-9-]+", entry)
    return found.group(0) if found else None


def named(entry, anchors):
    """The flag, as code, with an anchor of its long name where the page has none yet."""
    name = long_name(entry)
    code = "`" + entry.removesuffix("{false}") + "`"
    if name is None or name in anchors:
        return code
    anchors.add(name)
    return f'<span id="{name}"></span>{code}'


def table(rows, anchors):
    lines = ["| | |", "|---|---|", *(f"| {named(entry, anchors)} | {cell(meaning)} |" for entry, meaning in rows)]
    return "\n".join(lines) + "\n"


def paragraphs(lines):
    """Sentences as text; usage and examples as they are printed."""
    text = []
    for part in re.split(r"\n\s*\n|\n(?=Usage:|ddprun |train )", "\n".join(lines).strip("\n")):
        if part.startswith(("  ", "Usage:", "ddprun -", "train e")):
            text.append(f"```text\n{textwrap.dedent(part)}\n```\n")
        elif part.strip():
            text.append(" ".join(cell(line) for line in part.splitlines()) + "\n")
    return text


def help_as_markdown(command, depth, anchors):
    """`command`: the words of a call that prints help, such as "ddprun --help all"; `depth`: of its headings; `anchors`: those
    of the page so far."""
    text = []
    for title, before, rows, after in parse(help_of(*command.split())):
        if title and rows and all(long_name(entry) in anchors for entry, _ in rows):
            rows = []  # the page has them, as flags of another command
        elif title and (rows or "".join(before).strip()):
            text.append(f"{depth} {title}\n")
        text += paragraphs(before)
        if rows:
            text.append(table(rows, anchors))
        text += paragraphs(after)
    return "\n".join(text)


def joined_literals(source):
    """C++ source with the string literals joined that follow each other."""
    return re.sub(r'"\s*\n?\s*"', "", source)


def metrics():
    """{name: (help, type)} of every metric that ddprun and ddprun-rendezvous have."""
    found = {}
    for path in METRIC_SOURCES:
        text = joined_literals((REPO / path).read_text())
        for name, words, kind in re.findall(r'"((?:ddprun|process)_[a-z_]+)",\s*"([^"]+)"(?:,\s*Type::k(\w+))?', text):
            found[name] = (words, kind.lower() or ("counter" if name.endswith("_total") else "gauge"))
    return found


def metrics_as_markdown():
    lines = ["| metric | type | what it is |", "|---|---|---|"]
    for name, (meaning, kind) in sorted(metrics().items()):
        lines.append(f'| <span id="{slug(name)}"></span>`{name}` | {kind} | {cell(meaning)} |')
    return "\n".join(lines) + "\n"
