# SPDX-License-Identifier: Apache-2.0
"""A terminal that a test looks at: a program on a pty, and what it has drawn there."""

import codecs
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
import time

from conftest import STARTED, clean_environment

DEADLINE_S = 30
SEQUENCE = re.compile(r"\x1b(?:\[([?>]?)([\d;]*)([@-~])|\][^\x07]*\x07|[()*+].|[ -~])")


class Cells:
    """What the sequences that ncurses sends to xterm, screen, linux and vt100 do to a screen."""

    def __init__(self, columns, rows):
        self.resize(columns, rows)

    def resize(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.row = self.column = 0
        self.top, self.bottom = 0, rows - 1
        self.lines = [[" "] * columns for _ in range(rows)]
        self.last = " "

    def scroll(self, at, down, count=1):
        for _ in range(count):
            self.lines.insert(self.bottom + 1 if not down else at, [" "] * self.columns)
            del self.lines[at if not down else self.bottom + 1]

    def feed(self, text):
        """Returns the rest: the start of a sequence."""
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                found = SEQUENCE.match(text, at)
                if not found:
                    return text[at:]
                self.control(found)
                at = found.end()
                continue
            self.put(text[at])
            at += 1
        return ""

    def put(self, character):
        if character == "\r":
            self.column = 0
        elif character == "\b":
            self.column = max(0, self.column - 1)
        elif character == "\t":
            self.column = min(self.columns - 1, (self.column // 8 + 1) * 8)
        elif character == "\n":
            if self.row == self.bottom:
                self.scroll(self.top, False)
            else:
                self.row += 1
        elif character >= " ":
            self.lines[self.row][min(self.column, self.columns - 1)] = self.last = character
            self.column += 1

    def control(self, found):
        private, numbers, kind = found.groups()
        if kind is None:
            if found[0] == "\x1bM":
                if self.row == self.top:
                    self.scroll(self.top, True)
                else:
                    self.row -= 1
            return
        if private:
            return
        given = [int(number or 0) for number in numbers.split(";")]
        count, line = max(1, given[0]), self.lines[self.row]
        self.column = min(self.column, self.columns - 1) if kind in "ABCDKPX@" else self.column
        if kind in "Hf":
            self.row, self.column = count - 1, max(1, given[1] if len(given) > 1 else 1) - 1
        elif kind in "AB":
            self.row = min(self.rows - 1, max(0, self.row + (count if kind == "B" else -count)))
        elif kind in "CD":
            self.column = min(self.columns - 1, max(0, self.column + (count if kind == "C" else -count)))
        elif kind == "G":
            self.column = count - 1
        elif kind == "d":
            self.row = count - 1
        elif kind == "J":
            if given[0] == 0:
                line[self.column :] = [" "] * (self.columns - self.column)
            for row in range(self.row + 1 if given[0] == 0 else 0, self.rows):
                self.lines[row] = [" "] * self.columns
        elif kind == "K":
            first, last = (self.column, self.columns) if given[0] == 0 else (0, self.column + 1)
            line[first:last] = [" "] * (last - first)
        elif kind == "X":
            line[self.column : self.column + count] = [" "] * min(count, self.columns - self.column)
        elif kind == "P":
            line[self.column :] = (line[self.column + count :] + [" "] * count)[: self.columns - self.column]
        elif kind == "@":
            line[self.column :] = ([" "] * count + line[self.column :])[: self.columns - self.column]
        elif kind in "LM":
            self.scroll(self.row, kind == "L", count)
        elif kind in "ST":
            self.scroll(self.top, kind == "T", count)
        elif kind == "b":
            for _ in range(count):
                self.put(self.last)
        elif kind == "r":
            self.top, self.bottom = count - 1, (given[1] if len(given) > 1 else self.rows) - 1
            self.row = self.column = 0
        else:
            assert kind in "mhlngt", found[0]


class Screen:
    def __init__(self, command, term="xterm-256color", columns=120, rows=30, **env):
        self.cells = Cells(columns, rows)
        self.raw = b""
        self.changed = threading.Condition()
        self.master, slave = pty.openpty()
        self.slave = slave  # stays open, so that the terminal's settings can be read at the end
        self.set_size(columns, rows)
        self.settings = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env=clean_environment(TERM=term, **{"LC_ALL": "C.UTF-8", **env}),
        )
        STARTED.append(self.process)
        threading.Thread(target=self._read, daemon=True).start()

    def set_size(self, columns, rows):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns, rows):
        with self.changed:
            self.cells.resize(columns, rows)
        self.set_size(columns, rows)

    def _read(self):
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        rest = ""
        while True:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return
            with self.changed:
                self.raw += data
                rest = self.cells.feed(rest + decoder.decode(data))
                self.changed.notify_all()

    def text(self):
        with self.changed:
            return "\n".join("".join(line).rstrip() for line in self.cells.lines)

    def wait_for(self, pattern, timeout=DEADLINE_S):
        """Until the screen has what matches, which is returned."""
        deadline = time.monotonic() + timeout
        with self.changed:
            while not (found := re.search(pattern, self.text(), re.MULTILINE)):
                left = deadline - time.monotonic()
                assert left > 0 and (self.process.poll() is None or left > timeout / 2), f"{pattern} did not come:\n{self.text()}"
                self.changed.wait(min(left, 0.5))
        return found

    def press(self, keys):
        os.write(self.master, keys.encode())

    def end(self):
        """Waits for the end of the program; its exit code."""
        code = self.process.wait(DEADLINE_S)
        assert termios.tcgetattr(self.slave) == self.settings
        return code
