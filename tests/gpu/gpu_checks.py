# SPDX-License-Identifier: Apache-2.0
"""Runs the GPU checks and prints one JSON document; run.sh beside it says how it is called.

The document: `machine` and `bundle`; `checks`, each passed, failed or skipped (with the reason), with its figures;
`expectations` of expectations.json, each met, missed or not yet measured (with the reason); `skipped`, the same as
sentences. It is printed also where the limit comes first or SIGTERM does: what was left then is skipped. With --output it is
in a file after each check, and after each measurement of a long one: SIGKILL loses what was being measured.
"""

import argparse
import contextlib
import dataclasses
import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback

import judging
import report
import speed_checks
import training_checks
import workbench
from workbench import Expired, Failure, Skip, Workbench

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[1]
NEEDED_CUDA = "13"
PRINT_S = 5  # of the limit, kept for ending what runs and printing


@dataclasses.dataclass
class Check:
    run: object
    seconds: float  # it may take at most, and what the checks before it have left of theirs
    least: float  # with less of the limit left it is not begun

    @property
    def name(self):
        return self.run.__name__


# The most important first: a limit cuts off the end. What a check leaves of its time, those after it may take.
CHECKS = [
    # Correctness: three minutes.
    Check(training_checks.gpu_test, 75, 5),
    Check(training_checks.nccl_world_of_one, 15, 5),
    Check(training_checks.graph_equals_eager, 20, 10),
    Check(training_checks.kernels_equal_operations, 20, 10),
    Check(training_checks.equals_python, 25, 10),
    Check(training_checks.two_ranks_one_gpu, 15, 8),
    Check(training_checks.killed_rank, 25, 10),
    # The figures that are asked for first: five minutes.
    Check(speed_checks.resnet18_speed, 90, 30),
    Check(speed_checks.resnet18_compiled, 120, 50),
    Check(speed_checks.resnet50_speed, 50, 20),
    Check(speed_checks.save_stall, 25, 12),
    Check(speed_checks.augmentation, 15, 8),
    # The recipe, and where a step's time goes.
    Check(speed_checks.speedrun, 70, 25),
    Check(speed_checks.speedrun_compiled, 100, 45),
    Check(speed_checks.step_profile, 25, 10),
    # With the time that is left.
    Check(speed_checks.fused_kernels_speed, 40, 20),
    Check(speed_checks.netresdeep_speed, 40, 20),
    Check(speed_checks.first_step, 60, 25),
    Check(training_checks.fashion_mnist, 45, 15),
]
MINUTES = 12  # machines are often lent for a quarter of an hour, their start included


class Stopped(Exception):
    """This program was told to end."""


def say(text):
    print(f"gpu checks: {text}", file=sys.stderr, flush=True)


def refuse(text):
    """What was asked for cannot be done as asked."""
    print(f"run.sh: {text}", file=sys.stderr)
    sys.exit(2)


# ---- The machine ---------------------------------------------------------------------------------------------------------


def torch_folder():
    spec = importlib.util.find_spec("torch")
    places = list(spec.submodule_search_locations or []) if spec else []
    return pathlib.Path(places[0]) if places else None


def torch_facts(folder):
    text = (folder / "version.py").read_text() if folder and (folder / "version.py").exists() else ""
    version = re.search(r"^__version__ *= *['\"]([^'\"]+)", text, re.MULTILINE)
    cuda = re.search(r"^cuda\b[^=]*= *['\"]([^'\"]+)", text, re.MULTILINE)
    return {"folder": str(folder) if folder else None, "version": version and version[1], "cuda": cuda and cuda[1]}


def command_output(*command):
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    return ""


# In a process of its own, since a driver that hangs would take this one along.
COUNT_DEVICES = """
import ctypes
driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
print(count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0)
"""


def machine_facts():
    fields = "name,memory.total,driver_version,compute_cap,clocks.max.sm,power.limit"
    table = command_output("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader")
    gpus = [dict(zip(fields.split(","), map(str.strip, line.split(",")))) for line in table.splitlines() if line.strip()]
    cpu = re.search(r"^model name\s*: (.+)", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "gpus": gpus,
        "devices": int(command_output(sys.executable, "-c", COUNT_DEVICES) or 0),
        "cpu": cpu and cpu[1],
        "cpus": len(os.sched_getaffinity(0)),
        "python": sys.version.split()[0],
        "torch": torch_facts(torch_folder()),
    }


def why_nothing(machine, needed, rehearse):
    """Why no check can be made here with a bundle for the torch `needed`; None if they can."""
    torch = machine["torch"]
    if not torch["version"]:
        return f"{sys.executable} has no torch; give --torch, or a python3 that has torch {needed}"
    if not torch["version"].startswith(f"{needed}."):
        return f"torch in {torch['folder']} is {torch['version']}, and this bundle was built for {needed}"
    if rehearse:
        return None
    if not (torch["cuda"] or "").startswith(f"{NEEDED_CUDA}."):
        return f"torch in {torch['folder']} is for CUDA {torch['cuda']}, and this bundle was built for CUDA {NEEDED_CUDA}"
    if machine["devices"] == 0:
        return "no GPU: the driver libcuda.so.1 is not there or shows none"
    return None


# ---- The bundle ----------------------------------------------------------------------------------------------------------


def find_bundle(named):
    if named:
        return named
    if (REPO / "bundle.json").exists():
        return REPO
    made = sorted((REPO / "build").glob("ddprun-*.tar.?z"), key=lambda path: path.stat().st_mtime)
    if not made:
        refuse(f"there is no bundle in {REPO}/build; make one with deploy/bundle.sh --tests, or name one with --bundle")
    return made[-1]


def unpack(bundle, work):
    """The folder of the bundle; a tarball is unpacked below `work`."""
    if bundle.is_dir():
        folder = bundle
    else:
        try:
            with tarfile.open(bundle) as archive:
                archive.extractall(work / "bundle", **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        except (OSError, tarfile.TarError) as error:
            refuse(f"--bundle {bundle} cannot be unpacked: {error}")
        folder = next((work / "bundle").iterdir(), work)
    if not (folder / "bundle.json").exists():
        refuse(f"--bundle {bundle} is not a bundle of deploy/bundle.sh: it has no bundle.json")
    return folder.resolve()


# ---- The checks ----------------------------------------------------------------------------------------------------------


def with_figures(result, bench):
    if bench.figures:
        result["rehearsed" if bench.rehearsal else "figures"] = bench.figures
    if bench.missing:
        result["missing"] = bench.missing
    return result


def make(check, bench, end, keep, spare=0.0):
    """One check's result. `end`: when the whole must be done (time.monotonic()). keep(result): what is known of it so far.
    spare: seconds that it may take beyond its own."""
    left = end - time.monotonic()
    if left < check.least:
        return {"status": "skipped", "reason": f"{max(0, left):.0f} s of the limit were left, and it takes {check.least:.0f}"}
    say(f"{check.name} ...")
    begin = time.monotonic()
    bench.deadline = min(end, begin + check.seconds + spare)
    bench.figures, bench.missing = {}, {}
    bench.keep = lambda: keep(with_figures({"status": "skipped", "reason": "it was not done when this was written"}, bench))
    result = {"status": "passed"}
    try:
        check.run(bench)
    except Skip as reason:
        result = {"status": "skipped", "reason": str(reason)}
    except Expired as reason:
        # Cut off by the limit of the whole it says nothing; in its own time a check that trains should have been done.
        cut = bench.deadline == end or check.run.__module__ == speed_checks.__name__
        result = {"status": "skipped" if cut else "failed", "reason": f"{reason} ({bench.deadline - begin:.0f} s)"}
    except Failure as reason:
        result = {"status": "failed", "reason": str(reason)}
    except Stopped as reason:
        keep(with_figures({"status": "skipped", "reason": str(reason)}, bench))
        raise
    except Exception as error:  # a mistake of the script must not cost the other checks' figures
        traceback.print_exc()
        result = {"status": "failed", "reason": f"{type(error).__name__}: {error}"}
    result = {"missing": {}, **with_figures(result, bench), "seconds": round(time.monotonic() - begin, 1)}
    result.setdefault("rehearsed" if bench.rehearsal else "figures", {})
    say(f"{check.name}: {result['status']} {result.get('reason', '')}".rstrip())
    return result


def make_all(checks, bench, end, results, written):
    """Fills `results`, so that what is done is there also if this is stopped. written(): called after each change."""
    spare = 0.0
    for check in checks:

        def keep(result, name=check.name):
            results[name] = result
            written()

        begin = time.monotonic()
        keep(make(check, bench, end, keep, spare))
        spare = max(0.0, spare + check.seconds - (time.monotonic() - begin))


def parse_arguments():
    names = [check.name for check in CHECKS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=pathlib.Path)
    parser.add_argument("--torch", help="run.sh has looked at it")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--only", type=lambda text: text.split(","))
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--data-dir", type=pathlib.Path)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--merge", type=pathlib.Path)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--rehearse", action="store_true")
    options = parser.parse_args()
    unknown = sorted(set(options.only or ()) - set(names))
    if unknown:
        parser.error(f"--only: there is no check {', '.join(unknown)}; there are {', '.join(names)}")
    if 60 * options.minutes <= PRINT_S:
        parser.error(f"--minutes must be more than {PRINT_S / 60:.2f}, but is {options.minutes:g}")
    if options.list:
        print("\n".join(names))
        sys.exit(0)
    return options


def checks_of(options):
    """(checks, the name of the file of their document)."""
    if not options.only:
        return CHECKS, "all.json"
    return [check for check in CHECKS if check.name in options.only], f"{'-'.join(sorted(set(options.only)))[:200]}.json"


def merged(folder, as_table):
    """Prints the document of all that --output has left in the folder, or its table, and ends."""
    try:
        told = report.merge(report.read_all(folder))
    except (OSError, ValueError) as error:
        refuse(f"--merge {folder}: {error}")
    print(report.table(told) if as_table else json.dumps(told, indent=1), end="" if as_table else "\n")
    for one in told["expectations"] if not as_table else []:
        seen = f"{one['measured']:.6g}, {one['compare']} {one['target']:g} {one['unit']}" if "measured" in one else one["reason"]
        say(f"{one['status']}: {one['name']}: {seen}")
    sys.exit(judging.exit_code(told["checks"], told["expectations"]))


def stop(number, _):
    raise Stopped(f"ended by {signal.Signals(number).name}")


def main():
    begin = time.monotonic()
    options = parse_arguments()
    if options.merge:
        merged(options.merge, options.table)
    checks, name = checks_of(options)
    end = begin + 60 * options.minutes - PRINT_S
    if options.output:
        try:
            options.output.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            refuse(f"--output {options.output}: {error}")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    results, machine, bundle = {}, {"gpus": [], "torch": {}}, None
    why = "it was not reached"

    def told():
        missing = {check.name: {"status": "skipped", "reason": why} for check in checks if check.name not in results}
        return report.document(options.rehearse, options.quick, machine, bundle, {**results, **missing})

    def written():
        if options.output:
            report.write(options.output / name, told())

    with tempfile.TemporaryDirectory(prefix="ddprun-gpu-", ignore_cleanup_errors=True) as work:
        try:
            machine = machine_facts()
            folder = unpack(find_bundle(options.bundle), pathlib.Path(work))
            bundle = json.loads((folder / "bundle.json").read_text())
            reason = why_nothing(machine, bundle["torch"], options.rehearse)
            if reason is None:
                bench = Workbench(
                    folder, pathlib.Path(machine["torch"]["folder"]), "cpu" if options.rehearse else "cuda",
                    options.quick, options.data_dir, pathlib.Path(work),
                )
                try:
                    if not options.rehearse:
                        speed_checks.start_peers(bench, {check.name for check in checks})
                    make_all(checks, bench, end, results, written)
                finally:
                    for peer in bench.peers.values():
                        workbench.end(peer.process)
            else:
                why = reason
        except Stopped as reason:
            why = str(reason)
            say(why)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        written()
        document = told()
        print(json.dumps(document, indent=1), flush=True)
    for line in document["skipped"]:
        say(f"skipped {line}")
    sys.exit(judging.exit_code(document["checks"], document["expectations"]))


if __name__ == "__main__":
    main()
