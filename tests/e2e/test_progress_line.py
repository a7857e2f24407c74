# SPDX-License-Identifier: Apache-2.0
"""The progress line of `train` on a terminal: one line, redrawn in place, which leaves nothing behind; a log has none."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

import pytest
from conftest import DDPRUN, TRAIN, clean_environment, run, start

COLUMNS = 60
SHORT = ["--model", "linear", "--dataset", "random", "--samples", "512", "--input-size", "64", "--batch-size", "4", "--log-every", "100"]
ENDLESS = [*SHORT, "--epochs", "1000000", "--log-every", "1000000"]
BAR = re.compile(r"(?:\[=*>? *\] )?[ \d]\d?\d% ETA \d+:\d\d(?::\d\d)? epoch \d")


@contextlib.contextmanager
def on_terminal(*command, **environment):
    """(process, read): read(until=None) gives what the terminal was sent up to then or to the end."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    env = clean_environment(TERM="xterm", OMP_NUM_THREADS="1") | environment
    process = start(command, env=env, stdout=its, stderr=its, stdin=its, start_new_session=True)
    os.close(its)
    sent = b""

    def read(until=None):
        nonlocal sent
        deadline = time.monotonic() + 100
        while until is None or not re.search(until, sent.decode()):
            ready, _, _ = select.select([ours], [], [], deadline - time.monotonic())
            assert ready, sent
            try:
                sent += os.read(ours, 65536)
            except OSError:  # the other side is closed
                assert until is None, sent
                break
        return sent.decode()

    try:
        yield process, read
    finally:
        os.close(ours)


def screen(sent):
    """The lines that a person sees at the end; of what a terminal does, what is used here."""
    lines, column = [""], 0
    for piece in re.findall(r"\x1b\[2?K|.", sent, re.DOTALL):
        if piece.startswith("\x1b"):
            lines[-1] = "" if piece == "\x1b[2K" else lines[-1][:column]
        elif piece == "\n":
            lines.append("")
        elif piece == "\r":
            column = 0
        else:
            lines[-1] = lines[-1][:column].ljust(column) + piece + lines[-1][column + 1 :]
            column += 1
    return lines


def bars(sent):
    return [piece for piece in re.split(r"[\r\n]|\x1b\[2?K", sent) if BAR.search(piece)]


def without_numbers(lines):
    return [re.sub(r"/[ab]/|[\d.]+", "0", line) for line in lines]


def test_the_line_is_one_and_leaves_nothing_behind(tmp_path):
    command = [TRAIN, *SHORT, "--epochs", "20", "--output-dir"]
    begun = time.monotonic()
    with on_terminal(*command, tmp_path / "a") as (process, read):
        sent = read()
        assert process.wait(60) == 0
    passed = time.monotonic() - begun
    drawn = bars(sent)
    assert 1 <= len(drawn) <= 10 * passed + 1
    assert max(map(len, drawn)) < COLUMNS, drawn
    assert not any(BAR.search(line) for line in screen(sent))
    log = run([*command, tmp_path / "b"], env=clean_environment(TERM="xterm", OMP_NUM_THREADS="1"))
    assert "\r" not in log.stdout and "\x1b" not in log.stdout and "ETA" not in log.stdout
    assert without_numbers(screen(sent)) == without_numbers([*log.stdout.splitlines(), ""])


@pytest.mark.parametrize("saves", [[], ["--checkpoint-every", "1000000"]], ids=["ended", "saved"])
def test_a_signal_erases_it(tmp_path, saves):
    with on_terminal(TRAIN, *ENDLESS, *saves, "--output-dir", tmp_path) as (process, read):
        read(BAR)
        process.send_signal(signal.SIGINT)
        lines = screen(read())
        assert process.wait(60) == (128 + signal.SIGINT if saves else -signal.SIGINT)
    assert not any("ETA" in line for line in lines), lines
    assert lines[-1] == ""


def test_an_error_is_a_line_of_its_own(tmp_path):
    grows = ["--lr", "1e36", "--warmup-epochs", "0"]
    with on_terminal(TRAIN, *SHORT, *grows, "--output-dir", tmp_path) as (process, read):
        sent = read()
        assert process.wait(60) == 1
    assert bars(sent)
    lines = screen(sent)
    said = "".join(lines[[line.startswith("train: ") for line in lines].index(True) :])
    assert re.fullmatch(r"train: .*the loss is .*", said) and "ETA" not in said, lines


def test_a_terminal_that_cannot_erase_has_lines_alone(tmp_path):
    with on_terminal(TRAIN, *SHORT, "--epochs", "20", "--output-dir", tmp_path, TERM="dumb") as (process, read):
        sent = read()
        assert process.wait(60) == 0
    assert "ETA" not in sent and "\x1b" not in sent and "epoch 20/20 mean loss" in sent


def test_under_ddprun_its_console_shows_it(tmp_path):
    with on_terminal(DDPRUN, "--standalone", TRAIN, *ENDLESS, "--output-dir", tmp_path) as (process, read):
        drawn = bars(read(BAR))
        process.send_signal(signal.SIGINT)
        lines = screen(read())
        process.wait(60)
    assert drawn[0].startswith("[0] [") and max(map(len, drawn)) < COLUMNS
    assert not any("ETA" in line for line in lines), lines
