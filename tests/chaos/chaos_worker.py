# SPDX-License-Identifier: Apache-2.0
"""A worker that talks to its peers without pause, and fails as a plan says.

The plan ($CHAOS_PLAN, JSON) has an entry for each restart count: the kind of failure, the ranks that fail, and at which
step (0: before they have met). Whoever fails writes down its pid just before ($CHAOS_TRUTH/<restart>.<rank>).

With $CHAOS_TORCH the peers talk by torch.distributed's all_reduce over Gloo and the program is @record-ed. Otherwise by
a ring of TCP connections: it starts twenty times faster, and its ranks fail for want of a peer within a millisecond,
with Gloo's words.
"""

import json
import os
import pathlib
import signal
import socket
import struct
import sys
import time

RANK = int(os.environ["RANK"])
WORLD_SIZE = int(os.environ["WORLD_SIZE"])
RESTART = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
ENTRY = json.loads(pathlib.Path(os.environ["CHAOS_PLAN"]).read_text())[RESTART]
TORCH = bool(os.environ.get("CHAOS_TORCH"))
MEETING_TIMEOUT_S = 60


def write_down():
    truth = pathlib.Path(os.environ["CHAOS_TRUTH"])
    draft = truth / f"draft.{RANK}"
    draft.write_text(str(os.getpid()))
    draft.rename(truth / f"{RESTART}.{RANK}")


def wait_for_the_death_of(rank):
    """Only that is an order that nobody can doubt: a process may be preempted between its last line and its end."""
    written = pathlib.Path(os.environ["CHAOS_TRUTH"], f"{RESTART}.{rank}")
    deadline = time.monotonic() + MEETING_TIMEOUT_S
    pid = ""
    while time.monotonic() < deadline:
        try:
            # Apart from what follows: that it has not written yet is not that it is gone.
            pid = pid or written.read_text()
        except OSError:
            continue
        if not pid:
            continue
        process = pathlib.Path(f"/proc/{pid}")
        try:
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
            # The first thread may be dead while others have not yet come to their end.
            if state in "ZX" and len(os.listdir(process / "task")) <= 1:
                return
        except OSError:
            return  # reaped


def use_up_memory():
    held = []
    while True:
        held.append(bytearray(b"x" * (4 << 20)))


def fail():
    kind = ENTRY["kind"]
    if kind == "second" and RANK != ENTRY["ranks"][0]:
        wait_for_the_death_of(ENTRY["ranks"][0])
        time.sleep(ENTRY["apart_s"])
    write_down()
    if kind in ("exit",):
        os._exit(ENTRY["code"])
    if kind in ("signal", "node", "second"):
        os.kill(os.getpid(), getattr(signal, ENTRY["signal"]))
        time.sleep(60)
    if kind == "memory":
        use_up_memory()
    # "exception" and "recorded": the second writes its record first, as torch's @record does.
    if kind == "recorded" and not TORCH:
        words = {"message": "ValueError: injected", "extraInfo": {"py_callstack": "ValueError: injected\n", "timestamp": "1"}}
        pathlib.Path(os.environ["TORCHELASTIC_ERROR_FILE"]).write_text(json.dumps({"message": words}))
    raise ValueError("injected")


def fail_if_planned(step):
    if RANK in ENTRY["ranks"] and step == ENTRY["step"]:
        fail()


# ---- A ring of connections


def receive(connection, size):
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise RuntimeError(f"[chaos/ring.py] Connection closed by peer {connection.getpeername()}")
        data += part
    return data


def send_words(connection, words):
    text = json.dumps(words).encode()
    connection.sendall(struct.pack("!I", len(text)) + text)


def receive_words(connection):
    return json.loads(receive(connection, struct.unpack("!I", receive(connection, 4))[0]))


def connect(address):
    deadline = time.monotonic() + MEETING_TIMEOUT_S
    while True:
        try:
            return socket.create_connection(address, timeout=MEETING_TIMEOUT_S)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.002)


def meet(listener):
    """Where each rank listens: rank 0 collects and tells it, at a port of the kernel's choice that a file names."""
    named = pathlib.Path(os.environ["CHAOS_TRUTH"], f"door.{RESTART}")
    port = listener.getsockname()[1]
    if RANK != 0:
        deadline = time.monotonic() + MEETING_TIMEOUT_S
        while not named.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"rank 0 has named no door within {MEETING_TIMEOUT_S} s")
            time.sleep(0.002)
        connection = connect((os.environ["MASTER_ADDR"], int(named.read_text())))
        send_words(connection, [RANK, [connection.getsockname()[0], port]])
        return receive_words(connection), [connection]
    places = {"0": [os.environ["MASTER_ADDR"], port]}
    door = socket.create_server(("", 0), backlog=WORLD_SIZE)
    draft = named.with_suffix(".draft")
    draft.write_text(str(door.getsockname()[1]))
    draft.rename(named)
    connections = [door.accept()[0] for _ in range(WORLD_SIZE - 1)]
    for connection in connections:
        rank, place = receive_words(connection)
        places[str(rank)] = place
    for connection in connections:
        send_words(connection, places)
    return places, connections


def talk_in_a_ring():
    listener = socket.create_server(("", 0), backlog=2)
    places, _kept = meet(listener)
    after = connect(tuple(places[str((RANK + 1) % WORLD_SIZE)]))
    before, _ = listener.accept()
    before.settimeout(None)
    for step in range(1, 1_000_000):
        fail_if_planned(step)
        after.sendall(b"x" * 4096)
        receive(before, 4096)


# ---- torch.distributed


def talk_by_gloo():
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    for step in range(1, 1_000_000):
        fail_if_planned(step)
        dist.all_reduce(torch.ones(4096))


def main():
    fail_if_planned(0)
    if TORCH:
        talk_by_gloo()
    else:
        talk_in_a_ring()


if __name__ == "__main__":
    if TORCH:
        from torch.distributed.elastic.multiprocessing.errors import record

        # The other kind is what a program does that does not know of @record.
        main = record(main) if ENTRY["kind"] != "exception" else main
    try:
        main()
    except BrokenPipeError as error:  # its own words have no colon before them
        raise RuntimeError(f"[chaos/ring.py] Broken pipe: {error}") from error
    sys.exit(0)
