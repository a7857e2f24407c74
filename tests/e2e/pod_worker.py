# SPDX-License-Identifier: Apache-2.0
"""A worker of a pod in tests, with no package: says where it is, and ends as its argument says."""

import os
import pathlib
import signal
import socket
import sys
import time

DEADLINE = time.monotonic() + 100
RANK = os.environ["RANK"]


def say(text):
    print(text, flush=True)


def tell_progress(step):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.sendto(f"STEP={step}\nSTEPS=10\nRATE=2.5\nUNIT=images\n".encode(), os.environ["DDPRUN_NOTIFY_SOCKET"])


def await_notice():
    agent = os.environ["DDPRUN_NOTIFY_SOCKET"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
        own.bind(agent + ".notices")
        own.settimeout(DEADLINE - time.monotonic())
        own.sendto(b"NOTICES=1\n", agent)
        say("listens")
        return dict(line.split("=", 1) for line in own.recv(4096).decode().splitlines())


def look_around():
    """What the pod's security context leaves: a user, capabilities, folders, variables."""
    status = pathlib.Path("/proc/self/status").read_text().splitlines()
    capabilities = {line.split()[1] for line in status if line.startswith("Cap")}
    say(f"uid {os.getuid()} capabilities {sorted(set(capabilities))} secret {'DDPRUN_TOKEN' in os.environ}")
    for folder in ("/", "/usr", "/opt/ddprun/bin", "/etc", "/work", "/tmp", "/dev/shm"):
        try:
            (pathlib.Path(folder) / "probe").touch()
            say(f"writes {folder}")
        except OSError:
            say(f"cannot write {folder}")


say(f"rank {RANK} of {os.environ['WORLD_SIZE']} round {os.environ['TORCHELASTIC_RESTART_COUNT']} run {os.environ['TORCHELASTIC_RUN_ID']}")
what = sys.argv[1]
if what == "look":
    look_around()
elif what == "until":  # a file of /work
    while not os.path.exists(sys.argv[2]):
        if time.monotonic() > DEADLINE:
            sys.exit("nobody made the file")
        time.sleep(0.02)
elif what == "notice":
    notice = await_notice()
    pathlib.Path(f"/work/saved-{RANK}").write_text(notice["SECONDS"])
    say(f"saved: {notice['REASON']} of {notice['HOST']}")
elif what == "save":  # at SIGTERM, and end well, as many programs do
    signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path(f"/work/saved-{RANK}").touch(), sys.exit(0)))
    say("has a handler")
    time.sleep(max(0.0, DEADLINE - time.monotonic()))
elif what == "fail":
    if RANK == "1":
        sys.exit(7)
    time.sleep(max(0.0, DEADLINE - time.monotonic()))
elif what == "progress":  # a step for each line that the file gets
    done = 0
    while done < 10:
        done = min(10, len(pathlib.Path(sys.argv[2]).read_text().split()))
        if RANK == "0":
            tell_progress(done)
        if time.monotonic() > DEADLINE:
            sys.exit("nobody wrote the file")
        time.sleep(0.05)
