# SPDX-License-Identifier: Apache-2.0
"""What a Python worker finds when it begins, as JSON in a folder: `parity_probe.py FOLDER [WHAT-TO-DO] ARGS...`.

A worker is a file `RANK-PID.json`. What to do then: nothing; `again:RANK`, where that rank's first worker fails once
all ranks are there and the others end when all have come again; `signals`, where the worker notes the first signal and
ends; `fails:RANK`, where that rank's worker fails once the others wait for signals.
"""

import ctypes
import json
import os
import pathlib
import resource
import signal
import stat
import sys
import time

DEADLINE = 120
PR_GET_PDEATHSIG, PR_GET_NO_NEW_PRIVS, PR_GET_TIMERSLACK = 2, 39, 30


def kind_of(fd):
    mode = os.fstat(fd).st_mode
    for name in ("FIFO", "SOCK", "REG", "CHR"):
        if getattr(stat, f"S_IS{name}")(mode):
            return name if name != "CHR" else os.readlink(f"/proc/self/fd/{fd}")
    return "other"


def descriptors():
    """Those that were there before this: listing a folder opens one that is gone by now."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = kind_of(int(name))
        except OSError:
            pass
    return found


def status():
    names = (
        "SigBlk",
        "SigIgn",
        "CapEff",
        "NoNewPrivs",
        "Seccomp",
        "Cpus_allowed_list",
        "Mems_allowed_list",
        "THP_enabled",
    )
    lines = (line.split(":", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
    return {name: value.strip() for name, value in lines if name in names}


def limits():
    return {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")}


def parent_death_signal():
    number = ctypes.c_int(0)
    ctypes.CDLL(None).prctl(PR_GET_PDEATHSIG, ctypes.byref(number), 0, 0, 0)
    return number.value


def has_terminal():
    try:
        os.close(os.open("/dev/tty", os.O_RDWR))
        return True
    except OSError:
        return False


def process():
    pid = os.getpid()
    return {
        "cwd": os.getcwd(),
        "ids": [os.getresuid(), os.getresgid(), sorted(os.getgroups())],
        "umask": int(pathlib.Path("/proc/self/status").read_text().split("Umask:")[1].split()[0], 8),
        "nice": os.nice(0),
        "policy": os.sched_getscheduler(0),
        "affinity": sorted(os.sched_getaffinity(0)),
        "oom_score_adj": pathlib.Path("/proc/self/oom_score_adj").read_text().strip(),
        "timer_slack": ctypes.CDLL(None).prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0),
        "limits": limits(),
        "leads_its_group": os.getpgid(0) == pid,
        "leads_its_session": os.getsid(0) == pid,
        "has_terminal": has_terminal(),
        "parent_death_signal": parent_death_signal(),
        "cgroup": pathlib.Path("/proc/self/cgroup").read_text(),
        "status": status(),
        "stdin": os.read(0, 100).decode() if kind_of(0) == "REG" else None,
    }


def seen(fds):
    fds = {name: kind for name, kind in fds.items() if name in ("0", "1", "2") or kind != "/proc"}
    return {
        "argv": sys.argv,
        "command": sys.orig_argv,
        "executable": sys.executable,
        "name": __name__,
        "file": __file__,
        "package": __package__,
        "path0": sys.path[0],
        "unbuffered": sys.stdout.write_through,
        "environment": dict(os.environ),
        "descriptors": fds,
        **process(),
    }


def ranks_with(folder, count):
    """Ranks of which at least so many workers have begun."""
    begun = [path.name.split("-")[0] for path in folder.glob("*.json")]
    return {rank for rank in begun if begun.count(rank) >= count}


def wait_until(condition):
    end = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > end:
            sys.exit("the other ranks have not come")
        time.sleep(0.01)


def wait_for_all(folder, count):
    wait_until(lambda: len(ranks_with(folder, count)) >= int(os.environ["WORLD_SIZE"]))


def come_again(folder, failing):
    rank = os.environ["RANK"]
    if rank in ranks_with(folder, 2):
        return
    wait_for_all(folder, 1)
    if rank == failing:
        sys.exit(3)
    wait_for_all(folder, 2)


def note_signals(folder, me):
    received = []

    def note(number, _):
        received.append(signal.Signals(number).name)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, note)
    (folder / f"{me}.ready").touch()
    end = time.monotonic() + DEADLINE
    while not received and time.monotonic() < end:
        time.sleep(0.01)
    (folder / f"{me}.signals").write_text(json.dumps(received))


def main():
    fds = descriptors()
    folder = pathlib.Path(sys.argv[1])
    me = f"{os.environ['RANK']}-{os.getpid()}"
    unfinished = folder / f"{me}.part"
    unfinished.write_text(json.dumps(seen(fds)))
    unfinished.rename(folder / f"{me}.json")
    what, _, which = (sys.argv[2] if len(sys.argv) > 2 else "").partition(":")
    if what == "again":
        come_again(folder, which)
    elif what == "fails" and os.environ["RANK"] == which:
        wait_until(lambda: len(list(folder.glob("*.ready"))) == int(os.environ["WORLD_SIZE"]) - 1)
        sys.exit(7)
    elif what in ("signals", "fails"):
        note_signals(folder, me)


if __name__ == "__main__":
    main()
