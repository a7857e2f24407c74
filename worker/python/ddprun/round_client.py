# SPDX-License-Identifier: Apache-2.0
"""Takes part in the rounds of ddprun from any Python program: when a peer dies, this process is kept, and goes on in the next
round instead of being started again. Nothing but the standard library is needed.

    rounds = Rounds()                       # absent agent: rounds.kept is False, and nothing below is ever needed
    rounds.keep()                           # from here on the agent keeps this process
    while not done:
        try:
            train_step()                    # a collective fails when a peer is gone
        except RuntimeError:
            if not rounds.kept or not rounds.broken(timeout=0.3):
                raise                       # an error of this process's own
            leave_process_group()
            rounds.left()                   # no communication in this round any more
            os.environ.update(rounds.wait_round())
            join_process_group_and_receive_the_state()

The datagrams are described in proto/round_message.h. A program whose collectives do not fail by themselves asks broken() with
timeout=0 between its steps, or gives Rounds() a function that ends them: it is called on a thread when the round is over.
"""

import os
import socket
import threading


class Rounds:
    def __init__(self, on_broken=None, environ=os.environ):
        self._notify = environ.get("DDPRUN_NOTIFY_SOCKET", "")
        self.has_agent = self._notify != ""
        self.round = int(environ.get("DDPRUN_ROUND") or 0)
        self.kept = False
        self._on_broken = on_broken
        self._broken = 0  # the latest round that is over
        self._next = None  # (number, variables)
        self._changed = threading.Condition()

    def keep(self):
        """Asks the agent to keep this process. False: there is no agent."""
        if not self.has_agent:
            return False
        path = self._notify + ".rounds"
        if os.path.exists(path):
            os.unlink(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(path)
        os.chmod(path, 0o600)
        threading.Thread(target=self._read, daemon=True).start()
        self._send("KEEP=1\n")
        self.kept = True
        return True

    def broken(self, timeout=0.0):
        """Whether the current round is over, or is within so many seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self._broken >= self.round, timeout)

    def left(self, error=""):
        """This process does not communicate in the current round any more. `error`: why it has left by itself."""
        self._send(f"LEFT={self.round}\n" + (f"ERROR={error[:400]}\n".replace("\n", " ").strip() + "\n" if error else ""))

    def wait_round(self, timeout=None):
        """The variables of the next round, which are to be put into os.environ. TimeoutError if it does not come."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._next is not None, timeout):
                raise TimeoutError(f"no round after round {self.round} within {timeout} s")
            self.round, variables = self._next
            self._next = None
            return variables

    def _send(self, text):
        self._socket.sendto(text.encode(), self._notify)  # its own: there may be no descriptor left

    def _read(self):
        while True:
            lines = self._socket.recv(16384).decode().splitlines()
            key, _, number = (lines or [""])[0].partition("=")
            if key in ("BROKEN", "ROUND") and number.isdigit():
                variables = dict(line.split("=", 1) for line in lines[1:] if "=" in line)
                self._receive(key, int(number), variables)

    def _receive(self, key, number, variables):
        with self._changed:
            over = number if key == "BROKEN" else number - 1  # a round that begins ends the one before
            is_new = over >= self.round > self._broken
            self._broken = max(self._broken, over)
            if key == "ROUND" and number > self.round:
                self._next = (number, variables)
            if self._next and self._next[0] <= self._broken:
                self._next = None
            self._changed.notify_all()
        if is_new and self._on_broken:
            self._on_broken()
