# SPDX-License-Identifier: Apache-2.0
"""What test_python_launch.py has ddprun.launch() call. Imported by the workers, so nothing of pytest here."""

import os
import resource
import signal
import sys
import threading
import time


def rank():
    return int(os.environ["RANK"])


def add(a, b):
    return a + b + rank()


def sum_of_ranks(backend):
    import torch
    import torch.distributed as dist

    dist.init_process_group(backend)
    total = torch.ones(2) * (rank() + 1)
    dist.all_reduce(total)
    dist.destroy_process_group()
    return total


def raise_in_rank_1():
    if rank() == 1:
        raise ValueError("the moon is in the wrong phase\nas it was before")
    time.sleep(600)


def raise_while_rank_0_is_deaf(path):
    if rank() == 0:
        wait_deaf(path)
    while not os.path.exists(f"{path}.0"):
        time.sleep(0.01)
    raise ValueError("while rank 0 waits")


def kill_rank_1(number):
    if rank() == 1:
        os.kill(os.getpid(), number)
    time.sleep(600)


def interrupt_rank_1():
    if rank() == 1:
        raise KeyboardInterrupt
    time.sleep(600)


def large(size):
    return bytes(size)


def exit_in_rank_1(code):
    if rank() == 1:
        sys.exit(code)
    return "returned"


def fail_in_the_first_round(path):
    """In rank 1, once rank 0 has returned. What that returned does not count."""
    restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if restarts > 0:
        return restarts
    if rank() == 0:
        with open(path + ".part", "w") as file:
            file.write(str(os.getpid()))
        os.rename(path + ".part", path)
        return "of a round that failed"
    while not os.path.exists(path):
        time.sleep(0.01)
    with open(path) as file:
        other = file.read()
    while os.path.exists(f"/proc/{other}/exe"):  # a zombie has none
        time.sleep(0.01)
    sys.exit(7)


def unsendable():
    return threading.Lock()


def too_large():
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    return bytes(1_000_000)


def print_odd_bytes():
    sys.stdout.buffer.write(b"caf\xe9 \xc3\xa9t\xc3\xa9\n")
    sys.stdout.flush()
    print("to stderr", file=sys.stderr, flush=True)


def what_is_seen():
    return sys.argv[1:], os.getcwd(), "torch" in sys.modules


def wait(path):
    """Says that it waits, by a file for each rank."""
    open(f"{path}.{rank()}", "w").close()
    time.sleep(600)


def wait_deaf(path):
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: open(f"{path}.told", "w").close())
    open(f"{path}.{rank()}", "w").close()
    while True:
        time.sleep(1)
