#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seeds deliberate mistakes into copies of the rules, one at a time, and expects the simulation to catch each.

    mutants.py BUILD_DIR [NAME...]

A mutant is a file of mutants/: a sentence, `file PATH`, and the text that stands there once with what replaces it. The
copy is compiled as the original is and linked before it into a program of its own; the tree is not touched. Caught
means that a seed, or else a named scenario, breaks an invariant; a crash or a mutant that does not apply is an error.
"""

import concurrent.futures
import json
import pathlib
import re
import shlex
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[1]
PROGRAM = "tests/ddprun-simulation"
SEEDS = 40000
JOBS = 2
TIMEOUT_S = 240


def read(path):
    text = path.read_text()
    match = re.fullmatch(r"(?P<why>(?:#.*\n)+)file (?P<file>\S+)\n<<<<\n(?P<old>.*?)\n====\n(?P<new>.*?)\n?>>>>\n", text, re.S)
    assert match, f"{path.name} is not a mutant: # why, file PATH, <<<< old ==== new >>>>"
    return match


def compile_command(build, source, copy, output):
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if pathlib.Path(entry["file"]) == REPO / source:
            words = shlex.split(entry["command"])
            words[words.index("-o") + 1] = str(output)
            words[words.index(str(REPO / source))] = str(copy)
            # A mistake may leave something unused; that is not what is to catch it.
            return [w for w in words if w not in ("-O2", "-Werror", "-g1")] + ["-O1"], entry["directory"]
    raise AssertionError(f"{source} is not compiled in {build}")


def link_command(build, mutated, output):
    lines = subprocess.run(["ninja", "-C", str(build), "-t", "commands", PROGRAM], check=True, capture_output=True, text=True)
    words = shlex.split(next(line for line in lines.stdout.splitlines()[::-1] if f"-o {PROGRAM} " in line))
    words = words[words.index("&&") + 1 :] if words[0] == ":" else words
    words = words[: words.index("&&")] if "&&" in words else words
    at = words.index("-o")
    # Before the libraries, which then have nothing left to give of that file.
    return words[:at] + [str(mutated), "-o", str(output)] + words[at + 2 :]


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, **options)


def judge(build, path):
    mutant = read(path)
    source = mutant["file"]
    text = (REPO / source).read_text()
    if text.count(mutant["old"]) != 1:
        return False, f"its text stands {text.count(mutant['old'])} times in {source}"
    folder = build / "mutants" / path.stem
    folder.mkdir(parents=True, exist_ok=True)
    copy, mutated, program = folder / pathlib.Path(source).name, folder / "mutated.o", folder / "simulation"
    copy.write_text(text.replace(mutant["old"], mutant["new"]))
    command, directory = compile_command(build, source, copy, mutated)
    compiled = run(command, cwd=directory)
    if compiled.returncode != 0:
        return False, "does not compile: " + compiled.stderr[:2000]
    linked = run(link_command(build, mutated, program), cwd=build)
    if linked.returncode != 0:
        return False, "does not link: " + linked.stderr[-2000:]
    # Nothing of it is kept: a hundred programs would fill a disk.
    try:
        return play(program)
    finally:
        for path in (program, mutated):
            path.unlink()


def play(program):
    scenarios = [str(scenario) for scenario in sorted((HERE / "scenarios").glob("*.txt"))]
    for arguments in (["--seeds", str(SEEDS), "--threads", "1"], scenarios):
        try:
            played = run([str(program), *arguments])
        except subprocess.TimeoutExpired:
            return False, f"does not end within {TIMEOUT_S} s"
        if played.returncode not in (0, 1):
            return False, f"ends with {played.returncode}: {played.stderr[-500:]}"
        if played.returncode == 1:
            first = played.stderr.splitlines()[0]
            return True, first.replace(str(HERE) + "/", "")
    return False, f"is not caught by {SEEDS} seeds and {len(scenarios)} scenarios"


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    paths = [path for path in sorted((HERE / "mutants").glob("*.txt")) if not sys.argv[2:] or path.stem in sys.argv[2:]]
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        verdicts = []
        for path, (caught, words) in zip(paths, pool.map(lambda path: judge(build, path), paths)):
            print(f"{'caught' if caught else 'NOT CAUGHT'}: {path.stem}: {words}", flush=True)
            verdicts.append(caught)
    missed = verdicts.count(False)
    print(f"{len(paths) - missed} of {len(paths)} caught")
    return 1 if missed or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
