#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a run of the tests cost and left out; deploy/test.sh calls it.

    ci_report.py calibrate FOLDER              times the calibration loop, before the tests
    ci_report.py report FOLDER [--nightly]     the dearest tests, the sum, the skipped tests and their reasons
    ci_report.py costs FOLDER                  writes tests/costs.txt, by which ctest starts the longest tests first

FOLDER has junit.xml of ctest and records.jsonl, to which each pytest file and each GoogleTest program appends its CPU time
and that of each of its tests (conftest.py, testing/cpu_time.cc). A unit is one calibration loop, so that sums of different
machines can be compared. The limit holds for one test function, since that is what proves a guarantee.

`report` fails on a skipped test whose reason is not in tests/allowed_skips.txt; with --nightly also if in the last run of
the CI tests in this build folder one took more than twice the CPU time that it may.
"""

import json
import pathlib
import re
import sys
import time
import xml.etree.ElementTree

TESTS = pathlib.Path(__file__).resolve().parent
DEAREST = 20
DEAREST_FILES = 10
REFERENCE_UNIT_S = 0.9  # the loop on the machine for which the limit is given
LIMIT_CPU_S = 20  # of a test in CI, on that machine
LIMIT_UNITS = LIMIT_CPU_S / REFERENCE_UNIT_S
FAILURE_LINES = 30  # shown of each test that failed
FAILURE_LINE_CHARACTERS = 160
COST_MIN_S = 5  # shorter tests may start in any order


def calibrate(folder):
    def loop():
        begin = time.process_time()
        value = 1
        for i in range(8_000_000):
            value = (value * 1103515245 + i) & 0x7FFFFFFF
        return time.process_time() - begin

    unit = min(loop() for _ in range(3))
    (folder / "unit").write_text(f"{unit:.3f}\n")
    print(f"calibration loop: {unit:.2f} CPU s")


def results(folder):
    """{name: (status, wall s, output)} of each test of ctest."""
    text = (folder / "junit.xml").read_bytes().decode(errors="replace")
    text = re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|&#(?:x?0*(?:[0-8bce-f]|1[0-9a-f]?));", "?", text)
    cases = xml.etree.ElementTree.fromstring(text.encode()).iter("testcase")
    return {
        case.get("name"): (case.get("status"), float(case.get("time") or 0), case.findtext("system-out") or "") for case in cases
    }


def records(folder):
    """What the tests have written about themselves, by the name of the test of ctest."""
    found = {}
    path = folder / "records.jsonl"
    for line in path.read_text().splitlines() if path.exists() else []:
        record = json.loads(line)
        name = record.get("test") or record.get("filter", "").removesuffix(".*")
        one = found.setdefault(name, {"cpu": 0, "tests": {}, "skipped": record.get("skipped", [])})
        one["cpu"] += record["cpu"]
        one["tests"].update(record["tests"])
    return found


def record_of(known, name):
    """GoogleTest's programs do not know the label that ctest puts before a test's name."""
    return known.get(name) or known.get(name.partition(".")[2]) or {}


def skips_of(name, status, output, record):
    """(test, reason) of each test that was skipped."""
    found = [(test, reason) for test, reason in record.get("skipped", [])]
    found += [(name, reason.strip()) for reason in re.findall(r": Skipped\n(.*)\n", output)]
    if status in ("notrun", "disabled") and not found:
        last = [line for line in output.splitlines() if line.strip()][-1:]
        found.append((name, last[0].strip() if last else status))
    return found


def allowed_skips():
    lines = (TESTS / "allowed_skips.txt").read_text().splitlines()
    return [re.compile(line) for line in lines if line and not line.startswith("#")]


def report_skips(skips):
    """Prints them, by their reasons. Returns how many are not allowed."""
    allowed = allowed_skips()
    by_reason = {}
    for test, reason in skips:
        by_reason.setdefault(reason, []).append(test)
    print(f"\nskipped: {len(skips)} tests")
    refused = 0
    for reason, tests in sorted(by_reason.items()):
        fine = any(pattern.fullmatch(reason) for pattern in allowed)
        refused += 0 if fine else len(tests)
        names = ", ".join(sorted(tests)[:4]) + (f" and {len(tests) - 4} more" if len(tests) > 4 else "")
        print(f"  {'' if fine else 'NOT ALLOWED: '}{reason}: {names}")
    if refused:
        print(f"{refused} tests were skipped for reasons that tests/allowed_skips.txt does not list")
    return refused


def report_failures(found):
    """Repeats the lines that say what failed, so that they are at the end of a long log."""
    tell = re.compile(r"E   |FAILED |.*: Failure$|.*(AddressSanitizer|runtime error|terminate called)")
    for name, (status, _, output) in found.items():
        if status != "fail":
            continue
        lines = [line for line in output.splitlines() if line.strip()]
        first = next((i for i, line in enumerate(lines) if tell.match(line)), None)
        if first is None:
            lines = lines[-FAILURE_LINES:]
        elif lines[first].startswith(("E   ", "FAILED ")):
            lines = [line for line in lines if tell.match(line)]
        else:
            lines = lines[first:]
        print(f"\nFAILED: {name}")
        for line in lines[:FAILURE_LINES]:
            print(f"  {line[:FAILURE_LINE_CHARACTERS]}")


def too_dear(costs, unit, factor):
    return [name for name, cpu in costs.items() if cpu / unit > factor * LIMIT_UNITS]


def functions_of(name, record):
    """CPU seconds by the name of each test function in a test of ctest, which has one function or many."""
    tests = record["tests"]
    return {name if len(tests) == 1 else f"{name}: {test}": cpu for test, cpu in tests.items()}


def print_dearest(costs, unit, what, count):
    print(f"\nthe {count} dearest of {len(costs)} {what}")
    for name, cpu in sorted(costs.items(), key=lambda item: -item[1])[:count]:
        print(f"  {cpu:8.1f} CPU s  {cpu / unit:6.1f} units  {name}")


def report(folder, nightly):
    if not (folder / "junit.xml").exists():
        return 0
    unit = float((folder / "unit").read_text())
    known, costs, functions, skips, unknown = records(folder), {}, {}, [], []
    found = results(folder)
    for name, (status, wall, output) in found.items():
        record = record_of(known, name)
        if record:
            costs[name] = record["cpu"]
            functions |= functions_of(name, record)
        elif status == "run" and wall >= COST_MIN_S:
            unknown.append(f"{name} ({wall:.0f} s)")
        skips += skips_of(name, status, output, record)
    print_dearest(costs, unit, "files and suites", DEAREST_FILES)
    print_dearest(functions, unit, "tests", DEAREST)
    total = sum(costs.values())
    print(f"sum: {total:.0f} CPU s, {total / unit:.0f} units of {unit:.2f} CPU s")
    if unknown:
        print(f"without the CPU time of {', '.join(sorted(unknown))}, which do not tell it")
    last = folder / "ci.json"
    if not nightly:
        for name in too_dear(functions, unit, 1):
            print(f"warning: {name} is above the limit of {LIMIT_UNITS:.0f} units for a test of CI")
        last.write_text(json.dumps({"unit": unit, "costs": functions}))
    refused = report_skips(skips)
    dear = []
    if nightly and last.exists():
        before = json.loads(last.read_text())
        dear = too_dear(before["costs"], before["unit"], 2)
        for name in dear:
            print(f"FAILED: in CI {name} took more than twice the {LIMIT_UNITS:.0f} units that a test may")
    report_failures(found)
    return 1 if refused or dear else 0


def write_costs(folder):
    path = TESTS / "costs.txt"
    head = [line for line in path.read_text().splitlines() if line.startswith("#")]
    costs = {line.split()[0]: int(line.split()[1]) for line in path.read_text().splitlines() if line and not line.startswith("#")}
    for name, (status, wall, _) in results(folder).items():
        if not re.search(r"\s", name):
            costs.pop(name, None)
            if status == "run" and wall >= COST_MIN_S:
                costs[name] = round(wall)
    lines = [f"{name} {seconds}" for name, seconds in sorted(costs.items(), key=lambda item: (-item[1], item[0]))]
    path.write_text("\n".join([*head, *lines]) + "\n")


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("calibrate", "report", "costs"):
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[2])
    if sys.argv[1] == "calibrate":
        calibrate(folder)
    elif sys.argv[1] == "costs":
        write_costs(folder)
    else:
        sys.exit(report(folder, "--nightly" in sys.argv[3:]))


if __name__ == "__main__":
    main()
