# SPDX-License-Identifier: Apache-2.0
"""What this worker tells its agent. The keys are those of proto/progress_message.h."""

import os
import socket
import struct

_ROOM_WAIT_S = 1  # for the agent to read what it has, before a message that no other repeats

_socket = None


def progress(
    step=None, *, steps=None, epoch=None, rate=None, unit=None, loss=None, accuracy=None, gpu_memory=None, section=None, watch=True
):
    """Tells how far this worker is, for `ddpctl status`, the metrics and --hang-timeout: it is named if it told something once and then
    nothing more for that time. `steps`: of the whole program, so that the share that is done is known. `rate`: per second, of this
    worker alone, in `unit` ("images"). `loss`: of its last batch. `accuracy`: of the last evaluation, from 0 to 1. `gpu_memory`: in bytes. `section`: what it does now
    ("data"); the name of a collective ("all_reduce") says that it waits for others. What is left out stays as it was told last.
    `watch=False`: silence is no hang until the next call, for what comes after the training and reports nothing.

    Returns at once, also if the agent has no room for it now; with watch=False after a second. Any thread."""
    global _socket
    path = os.environ.get("DDPRUN_NOTIFY_SOCKET")
    if not path:
        return
    words = {"STEP": step, "STEPS": steps, "EPOCH": epoch, "RATE": rate, "UNIT": unit, "LOSS": loss}
    words |= {"ACCURACY": accuracy, "GPU_MEMORY": gpu_memory, "SECTION": section, "WATCH": None if watch else 0}
    text = "".join(f"{key}={value}".replace("\n", " ") + "\n" for key, value in words.items() if value is not None)
    try:
        if _socket is None:
            _socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            _socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _ROOM_WAIT_S, 0))
        _socket.sendto(text.encode(), socket.MSG_DONTWAIT if watch else 0, path)
    except OSError:
        pass  # the next one has what this one had
