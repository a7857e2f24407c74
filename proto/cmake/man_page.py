#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the manual page of a program, made from its own --help and that of its commands, so that neither is written twice.

    man_page.py PROGRAM VERSION [EMULATOR ...]      the emulator runs a program of another processor

Help is a `Usage:` line, paragraphs, headings that end in `:`, and two-column lists, which are indented by two spaces.
"""

import os
import re
import subprocess
import sys

HEADING = re.compile(r"^(\S.*):$")
ENTRY = re.compile(r"^ {1,4}(\S.*?)(?: {2,}(\S.*))?$")
CONTINUED = re.compile(r"^ {6,}(\S.*)$")
# CLI11 repeats these words where the list itself says as much.
NOISE = re.compile(r"\{false\}|:FLOAT in \[.*?\]|:INT in \[.*?\]|:TEXT\b")

EMULATOR = sys.argv[3:]


def help_of(program, *command):
    done = subprocess.run([*EMULATOR, program, *command, "--help"], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def roff(text):
    for plain, escaped in (("\\", "\\e"), ("-", "\\-"), ("'", "\\(aq"), ("`", "\\(ga")):
        text = text.replace(plain, escaped)
    return "\\&" + text if text.startswith(".") else text


def parse(text):
    """(usage, [paragraph], [(heading, [(term, text)])]) of a help text."""
    usage, paragraphs, sections, wrapped = "", [], [("", [])], False
    for line in text.splitlines():
        entry, continued, heading = ENTRY.match(line), CONTINUED.match(line), HEADING.match(line)
        entries = sections[-1][1]
        if line.lower().startswith("usage:"):
            usage = line.split(":", 1)[1].strip()
        elif continued and entries:
            entries[-1] = (entries[-1][0], f"{entries[-1][1]} {continued[1]}".strip())
        elif entry:
            entries.append((NOISE.sub("", entry[1]), entry[2] or ""))
        elif heading:
            sections.append((heading[1], []))
        elif line.strip():
            # A line that is full goes on in the next one.
            paragraphs[-1:] = [f"{paragraphs[-1]} {line}"] if wrapped else [*paragraphs[-1:], line]
        wrapped = len(line) > 90 and not line.startswith(" ")
    return usage, paragraphs, [section for section in sections if section[1]]


def entries_of(sections, level, shown):
    """The lists in roff, but for terms that `shown` has already; adds to it what is printed."""
    lines = []
    for heading, entries in sections:
        new = [entry for entry in entries if entry not in shown]
        shown.update(new)
        if new and heading:
            lines += [level + " " + roff(heading)]
        for term, text in new:
            lines += [".TP", f"\\fB{roff(term)}\\fR", roff(text) or "\\&"]
    return lines


def commands_of(sections):
    """The commands that the lists name, `status   show nodes, ranks, ...`, but those that another program has (`: ddprun doctor`), which
    an emulator could not run for them."""
    terms = [term for _, entries in sections for term, text in entries if not re.search(r": ddprun [a-z]+$", text)]
    return [match[0] for term in terms if (match := re.match(r"[a-z]+(?=$| [A-Z\[])", term))]


def page(program, version):
    name = os.path.basename(program)
    usage, paragraphs, sections = parse(help_of(program))
    sentence = paragraphs[0].split(". ")[0].rstrip(".")
    shown = set()
    lines = [
        f'.TH {name.upper()} 1 "" "ddprun {version}" "User Commands"',
        ".SH NAME",
        f"{name} \\- {roff(sentence[0].lower() + sentence[1:])}",
        ".SH SYNOPSIS",
        f"\\fB{roff(usage)}\\fR",
        ".SH DESCRIPTION",
    ]
    for paragraph in paragraphs:
        lines += [roff(paragraph), ".PP"]
    lines[-1:] = [".SH OPTIONS", *entries_of(sections, ".SS", shown)]
    for command in commands_of(sections):
        usage, paragraphs, own = parse(help_of(program, command))
        lines += [f".SH {name.upper()} {command.upper()}", f"\\fB{roff(usage)}\\fR"]
        for paragraph in paragraphs:
            lines += [".PP", roff(paragraph)]
        lines += entries_of(own, ".SS", shown)
    return "\n".join([*lines, ".SH SEE ALSO", ".BR ddprun (1)"]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page(*sys.argv[1:3]))
