#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seeds deliberate mistakes into copies of the product, one at a time, and expects the tests to catch each.

    mutants.py BUILD_DIR [--caught-by simulation|tests] [NAME...]

A mutant is a file of mutants/: a sentence, `file PATH`, and the text that stands there once with what replaces it. The
copy is compiled as the original is and takes its place in a program of its own; the tree is not touched. Caught means
that a seed of the simulation, or else a named scenario, breaks an invariant; or, with a line `test PATH FILTER` after
the file's, that one of these tests of that file fails or hangs, which pass without the mistake. A crash or a mutant that does
not apply is an error.
"""

import argparse
import concurrent.futures
import functools
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[1]
SIMULATION = "ddprun-simulation"
SEEDS = 40000
JOBS = 2
TIMEOUT_S = 240
HANG_S = 60  # of tests that pass in a few seconds without the mistake; ctest ends them too
FORM = (
    r"(?P<why>(?:#.*\n)+)file (?P<file>\S+)\n(?:test (?P<test>\S+) (?P<filter>\S+)\n)?"
    r"<<<<\n(?P<old>.*?)\n====\n(?P<new>.*?)\n?>>>>\n"
)


class Error(Exception):
    pass


def read(path):
    mutant = re.fullmatch(FORM, path.read_text(), re.S)
    assert mutant, f"{path.name} is not a mutant: # why, file PATH, perhaps test PATH FILTER, <<<< old ==== new >>>>"
    return mutant


def run(command, timeout=TIMEOUT_S, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, **options)


class Compilation:
    """How a source file becomes an object file: by itself, or with others in one file that includes it."""

    def __init__(self, build, entry, source):
        self.directory = entry["directory"]
        self.file = pathlib.Path(entry["file"])
        self.words = shlex.split(entry["command"])
        self.others = None
        included = f'#include "{source}"\n'
        if self.file.is_relative_to(build) and self.file.suffix == ".cc" and self.file.exists():
            text = self.file.read_text()
            self.others = text.replace(included, "") if included in text else None
        self.found = self.file == REPO / source or self.others is not None
        # FOLDER/CMakeFiles/TARGET.dir/...
        output = pathlib.Path(self.words[self.words.index("-o") + 1]).parts
        at = output.index("CMakeFiles")
        self.object = output[-1]
        self.target = output[at + 1].removesuffix(".dir")
        self.library = str(pathlib.Path(*output[:at], f"lib{self.target}.a"))


def compilations(build, source):
    entries = json.loads((build / "compile_commands.json").read_text())
    return [found for found in (Compilation(build, entry, source) for entry in entries) if found.found]


def program_of(build, mutant):
    if not mutant["test"]:
        return SIMULATION
    found = compilations(build, mutant["test"])
    if not found:
        raise Error(f"{mutant['test']} is not built in {build}")
    return found[0].target


def link_words(build, program):
    lines = subprocess.run(["ninja", "-C", str(build), "-t", "commands", f"tests/{program}"], check=True, capture_output=True, text=True)
    words = shlex.split(next(line for line in lines.stdout.splitlines()[::-1] if f"-o tests/{program} " in line))
    words = words[words.index("&&") + 1 :] if words[0] == ":" else words
    return words[: words.index("&&")] if "&&" in words else words


def in_library(name, word):
    return name in re.split("[,:]", word)


def make(build, mutant, program, folder):
    """The program with the mistake. Raises Error."""
    source = mutant["file"]
    words = link_words(build, program)
    found = [one for one in compilations(build, source) if any(in_library(one.library, word) for word in words)]
    if not found:
        raise Error(f"{source} is in no library of {program}")
    original = found[0]
    copy = folder / pathlib.Path(source).name
    copy.write_text((REPO / source).read_text().replace(mutant["old"], mutant["new"]))
    compiled, mutated = copy, folder / original.object
    if original.others is not None:
        compiled = folder / original.file.name
        compiled.write_text(f'#include "{copy}"\n{original.others}')
    # A mistake may leave something unused; that is not what is to catch it.
    command = [word for word in original.words if word != "-Werror"]
    command[command.index("-o") + 1] = str(mutated)
    command[command.index(str(original.file))] = str(compiled)
    done = run(command, cwd=original.directory)
    if done.returncode != 0:
        raise Error("does not compile: " + done.stderr[:2000])
    library = folder / pathlib.Path(original.library).name
    members = run(["ar", "t", str(build / original.library)]).stdout.split()
    if members.count(original.object) != 1:
        raise Error(f"{original.library} has {members.count(original.object)} files {original.object}")
    shutil.copyfile(build / original.library, library)
    subprocess.run(["ar", "r", str(library), str(mutated)], check=True, capture_output=True)
    output = folder / program
    words = [word.replace(original.library, str(library)) if in_library(original.library, word) else word for word in words]
    words[words.index("-o") + 1] = str(output)
    done = run(words, cwd=build)
    if done.returncode != 0:
        raise Error("does not link: " + done.stderr[-2000:])
    return output


def judge(build, path):
    mutant = read(path)
    times = (REPO / mutant["file"]).read_text().count(mutant["old"])
    if times != 1:
        return False, f"its text stands {times} times in {mutant['file']}"
    folder = build / "mutants" / path.stem
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        name = program_of(build, mutant)
        if mutant["test"]:
            expect_passes(build / "tests" / name, mutant["filter"])
        program = make(build, mutant, name, folder)
        return test(program, mutant["filter"]) if mutant["test"] else play(program)
    except Error as error:
        return False, str(error)
    except subprocess.TimeoutExpired as error:
        return False, f"does not end within {TIMEOUT_S} s: {error.cmd[0]}"
    finally:
        # A hundred programs would fill a disk.
        shutil.rmtree(folder)


@functools.cache
def expect_passes(program, tests):
    """Raises Error unless these tests run, and pass, without any mistake."""
    tested = run([str(program), f"--gtest_filter={tests}"])
    if tested.returncode != 0 or "[       OK ]" not in tested.stdout:
        raise Error(f"{program} {tests} does not pass without it: {tested.stdout[-500:]}{tested.stderr[-500:]}")


def test(program, tests):
    try:
        tested = run([str(program), f"--gtest_filter={tests}"], timeout=HANG_S)
    except subprocess.TimeoutExpired:
        return True, f"{tests} does not end"
    failed = re.search(r"^\[  FAILED  \] ([^\s,]+)", tested.stdout, re.M)
    if tested.returncode == 1 and failed:
        return True, failed[1]
    if tested.returncode != 0:
        return False, f"ends with {tested.returncode}: {tested.stderr[-500:]}"
    return False, f"is not caught by {tests}"


def play(program):
    scenarios = [str(scenario) for scenario in sorted((HERE / "scenarios").glob("*.txt"))]
    for arguments in (["--seeds", str(SEEDS), "--threads", "1"], scenarios):
        played = run([str(program), *arguments])
        if played.returncode not in (0, 1):
            return False, f"ends with {played.returncode}: {played.stderr[-500:]}"
        if played.returncode == 1:
            first = played.stderr.splitlines()[0]
            return True, first.replace(str(HERE) + "/", "")
    return False, f"is not caught by {SEEDS} seeds and {len(scenarios)} scenarios"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, metavar="BUILD_DIR")
    parser.add_argument("--caught-by", choices=["simulation", "tests"], help="only those")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    build = options.build.resolve()
    paths = [path for path in sorted((HERE / "mutants").glob("*.txt")) if not options.names or path.stem in options.names]
    if options.caught_by:
        paths = [path for path in paths if bool(read(path)["test"]) == (options.caught_by == "tests")]
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
