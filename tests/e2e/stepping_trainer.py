# SPDX-License-Identifier: Apache-2.0
"""A training of known times for test_simulate.py: stepping_trainer.py FOLDER STEP_S CHECKPOINT_STEPS CHECKPOINT_S START_S [keep]. All
ranks make a step together; every CHECKPOINT_STEPS steps they stop for CHECKPOINT_S, and rank 0 writes FOLDER/checkpoint. With `keep` they
are kept when a peer dies. It ends once there is FOLDER/done. Steps that ranks have completed are in FOLDER/round-N."""

import mmap
import os
import pathlib
import socket
import struct
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "worker" / "python"))
from ddprun.round_client import Rounds  # noqa: E402

RANKS_MAX = 16
LATE_S = 0.1  # less is a part of the step


class Account:
    """Of this process's time, as TIMES and DOING of proto/progress_message.h."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.times = {"training": 0.0, "waiting": 0.0, "checkpoint": 0.0}
        self.doing, self.since = "start", time.monotonic()

    def do(self, what, step=None):
        now = time.monotonic()
        if self.doing in self.times:
            self.times[self.doing] += now - self.since
        self.doing, self.since = what, now
        text = "TIMES=" + ",".join(f"{name} {seconds:.6f}" for name, seconds in self.times.items()) + f"\nDOING={what}\n"
        text += "" if step is None else f"STEP={step}\n"
        self.socket.sendto(text.encode(), os.environ["DDPRUN_NOTIFY_SOCKET"])


def slots_of(folder, round_number):
    with open(folder / f"round-{round_number}", "a+b") as file:
        file.truncate(8 * RANKS_MAX)
        return mmap.mmap(file.fileno(), 8 * RANKS_MAX)


def completed(slots, ranks):
    return min(struct.unpack_from(f"{RANKS_MAX}q", slots)[:ranks])


def train(folder, step_s, every, checkpoint_s, account, rounds, step):
    """False: the round is over, and was not the last."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    slots = slots_of(folder, os.environ["DDPRUN_ROUND"])
    over = lambda: (folder / "done").exists() or rounds.kept and rounds.broken()  # noqa: E731
    while not over():
        account.do("training", step)
        time.sleep(step_s)
        struct.pack_into("q", slots, 8 * rank, step + 1)
        begun = time.monotonic()
        while completed(slots, ranks) < step + 1 and not over():
            time.sleep(0.002)
            if account.doing == "training" and time.monotonic() - begun > LATE_S:
                account.do("waiting")
        if completed(slots, ranks) < step + 1:
            break
        step += 1
        if step % every == 0:
            account.do("checkpoint")
            time.sleep(checkpoint_s)
            if rank == 0:
                (folder / "checkpoint.new").write_text(str(step))
                (folder / "checkpoint.new").rename(folder / "checkpoint")
    return (folder / "done").exists()


def main():
    folder, step_s, every = pathlib.Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    account, rounds = Account(), Rounds()
    if not os.environ.get("DDPRUN_PARKED"):
        account.do("start")
    time.sleep(float(sys.argv[5]))
    if keep := "keep" in sys.argv:
        rounds.keep()
    if os.environ.get("DDPRUN_PARKED"):
        os.environ.update(rounds.wait_round())
    checkpoint = folder / "checkpoint"
    while True:
        before = folder / f"round-{int(os.environ['DDPRUN_ROUND']) - 1}"
        if keep and before.exists():  # from the peers that were kept
            slots = struct.unpack(f"{RANKS_MAX}q", before.read_bytes())
            step = min(one for one in slots if one > 0)
        else:
            step = int(checkpoint.read_text()) if checkpoint.exists() else 0
        if train(folder, step_s, every, float(sys.argv[4]), account, rounds, step):
            return
        rounds.left()
        os.environ.update(rounds.wait_round())


main()
