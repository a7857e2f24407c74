# SPDX-License-Identifier: Apache-2.0
"""Metrics for Weights & Biases or Trackio, whichever is installed. For a training by `train`, which has no Python in it, beside it or
afterwards:

    python -m ddprun.tracking METRICS.jsonl|RUN [--to trackio|wandb] [--project P] [--name N] [-f]

RUN: the --output-dir of a training. -f: go on as the file grows, until SIGINT or SIGTERM.
"""

import argparse
import importlib
import json
import os
import re
import signal
import sys
import time

TRACKERS = ("trackio", "wandb")
LOOK_INTERVAL = 1.0  # `train` writes every two seconds
READ_MAX = 1 << 20  # bytes at a time


def _import(to):
    """wandb comes first where the environment has a setting of it."""
    names = (to,) if to else sorted(TRACKERS, reverse=any(name.startswith("WANDB_") for name in os.environ))
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError:
            pass
    raise ImportError(f"{' and '.join(names)} cannot be imported; pip install {names[0]}")


def _plain(values):
    """Numbers as such, also of tensors of one value; the rest is left out."""
    plain = {}
    for name, value in values.items():
        if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
            value = value.item()
        if isinstance(value, (int, float)):
            plain[name] = value
    return plain


class Tracking:
    """Passes rank 0's values on. It never fails a training: the first problem is a line on stderr, and ends it.

    to: "wandb" or "trackio"; None: what is installed. name: of the run, by which a restarted training goes on with it; None: that of
    ddprun's run, else one that the tracker makes up. more: for the tracker's init()."""

    def __init__(self, to=None, project="ddprun", name=None, **more):
        self.failed = False
        self._arguments = (to, project, name, more)
        self._tracker = None

    def log(self, step, values):
        # Asked here, since a process that is kept may become rank 0.
        if os.environ.get("RANK", "0") not in ("", "0"):
            return
        self._call(lambda: self._begun().log(_plain(values), step=step))

    def finish(self):
        if self._tracker is not None:
            self._call(self._tracker.finish)
        self._tracker = None

    def _begun(self):
        if self._tracker is None:
            to, project, name, more = self._arguments
            tracker = _import(to)
            name = name or os.environ.get("TORCHELASTIC_RUN_ID")
            if name:
                more = {"name": name, "resume": "allow", **more}
                if tracker.__name__ == "wandb":  # which knows a run by its id, and Trackio by its name
                    more.setdefault("id", re.sub(r"[/\\#?%:]", "-", name)[:128])
            tracker.init(project=project, **more)
            self._tracker = tracker
        return self._tracker

    def _call(self, call):
        if self.failed:
            return
        try:
            call()
        except Exception as error:  # whatever a tracker and its server raise
            self.failed = True
            sys.stderr.write(f"ddprun.tracking: values are not logged any more: {type(error).__name__}: {error}\n")


def tracking(track):
    """What a callback's `track` means: True, a tracker's name, or a Tracking. None: it logs nothing."""
    return track if isinstance(track, Tracking) or not track else Tracking(None if track is True else track)


def records(path, follow):
    """(step, values) of each whole line of train's metrics. A training that is resumed cuts the file and makes the last steps again:
    what was read of them stays. Ends where another training has begun the file anew."""
    place, rest, inode, last, passed = 0, b"", None, -1, -1
    while True:
        with open(path, "rb") as file:
            now = os.fstat(file.fileno())
            if now.st_ino != (inode := inode or now.st_ino):
                return
            if now.st_size < place:
                place, rest, passed = 0, b"", last
            file.seek(place)
            read = file.read(READ_MAX)
        place += len(read)
        *lines, rest = (rest + read).split(b"\n")
        for line in lines:
            try:
                values = json.loads(line)
                step = int(values.pop("step"))
                if "time" in values:  # a name that Trackio has for its own
                    values["time/unix"] = values.pop("time")
            except (ValueError, KeyError, AttributeError, TypeError):
                sys.stderr.write(f"ddprun.tracking: a line of {path} is no record of train: {line[:80]!r}\n")
                continue
            if step > passed:
                last = step
                yield step, values
        if not read:
            if not follow:
                return
            time.sleep(LOOK_INTERVAL)


def main():
    parser = argparse.ArgumentParser(prog="python -m ddprun.tracking", description=__doc__.partition("\n\n")[0])
    parser.add_argument("run", help="train's metrics.jsonl, or the --output-dir that has it")
    parser.add_argument("--to", choices=TRACKERS, help="the tracker (what is installed)")
    parser.add_argument("--project", default="ddprun")
    parser.add_argument("--name", help="of the run (the folder's)")
    parser.add_argument("-f", "--follow", action="store_true", help="go on as the file grows, until SIGINT or SIGTERM")
    given = parser.parse_args()
    path = os.path.join(given.run, "metrics.jsonl") if os.path.isdir(given.run) else given.run
    name = given.name or os.path.basename(os.path.dirname(os.path.abspath(path)))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    one = Tracking(given.to, given.project, name)
    count = 0
    try:
        for step, values in records(path, given.follow):
            one.log(step, values)
            if one.failed:
                return 1
            count += 1
    except OSError as error:
        sys.stderr.write(f"ddprun.tracking: cannot read {path}: {error.strerror}; name train's metrics.jsonl or its --output-dir\n")
        return 1
    except KeyboardInterrupt:
        pass
    one.finish()
    print(f"{count} records of {path}")
    return 1 if one.failed else 0


if __name__ == "__main__":
    sys.exit(main())
