# SPDX-License-Identifier: Apache-2.0
"""An agent of one node for tests: starts workers, breaks rounds and begins new ones by the datagrams of
proto/round_message.h. It has no store: rank 0 of each round listens at a new MASTER_PORT."""

import os
import selectors
import signal
import socket
import subprocess
import time

from conftest import clean_environment, free_port

DEADLINE = 60  # of every wait for a worker


class Worker:
    """A process, the socket that it reports to, and what it has reported last."""

    def __init__(self, agent, number):
        self.agent = agent
        self.number = number
        self.path = str(agent.folder / f"notify_{number}")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.setblocking(False)
        self.kept = False
        self.left = 0
        self.left_at = 0.0
        self.step = 0
        self.step_at = 0.0
        self.section = ""
        self.error = ""
        self.rank = None
        self.process = None
        self.output = agent.folder / f"output_{number}.txt"

    def start(self, command, variables, preexec=None):
        self.process = subprocess.Popen(
            [str(word) for word in command],
            env=clean_environment(OMP_NUM_THREADS="1", DDPRUN_NOTIFY_SOCKET=self.path, **variables),
            stdout=self.output.open("w"),
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            preexec_fn=preexec,
        )

    def read(self):
        while True:
            try:
                text = self.socket.recv(2048).decode()
            except BlockingIOError:
                return
            for line in text.splitlines():
                key, _, value = line.partition("=")
                if key == "KEEP":
                    self.kept = value == "1"
                elif key == "LEFT":
                    self.left = max(self.left, int(value))
                    self.left_at = time.monotonic()
                elif key == "ERROR":
                    self.error = value
                elif key == "STEP" and int(value) != self.step:
                    self.step, self.step_at = int(value), time.monotonic()
                elif key == "SECTION":
                    self.section = value

    def send(self, text):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            try:
                sender.sendto(text.encode(), self.path + ".rounds")
            except ConnectionRefusedError:
                assert self.process.wait(DEADLINE) is not None  # it ends at this moment

    def alive(self):
        return self.process.poll() is None

    def kill(self, by=signal.SIGKILL):
        self.process.send_signal(by)
        self.process.wait(DEADLINE)


class RoundAgent:
    def __init__(self, folder, command, preexec=None):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.command = command
        self.preexec = preexec  # called with the rank in a new process
        self.round = 0
        self.workers = []  # by rank
        self.all = []
        self.selector = selectors.DefaultSelector()

    def new_worker(self):
        worker = Worker(self, len(self.all))
        self.all.append(worker)
        self.selector.register(worker.socket, selectors.EVENT_READ, worker)
        return worker

    def variables(self, rank, size, port):
        return {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(size),
            "LOCAL_WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "TORCHELASTIC_RUN_ID": "kept",
            "DDPRUN_ROUND": str(self.round),
        }

    def park(self):
        """A worker that waits for its first round."""
        worker = self.new_worker()
        worker.start(self.command, {"DDPRUN_PARKED": "1"})
        self.until(lambda: worker.kept or not worker.alive(), "a parked worker")
        assert worker.kept, worker.output.read_text()
        return worker

    def begin(self, workers):
        """A round of these workers, in the order of their ranks; None: a new one."""
        self.round += 1
        port = free_port()
        self.workers = [worker or self.new_worker() for worker in workers]
        for rank, worker in enumerate(self.workers):
            worker.rank = rank
            variables = self.variables(rank, len(self.workers), port)
            if worker.process is None:
                worker.start(self.command, variables, self.preexec and (lambda rank=rank: self.preexec(rank)))
            else:
                variables["DDPRUN_NOTIFY_SOCKET"] = worker.path
                worker.send(f"ROUND={self.round}\n" + "".join(f"{key}={value}\n" for key, value in variables.items()))

    def break_round(self, tell=True):
        """Ends the round: all that live have left when this returns. These, by their ranks; None: it has ended."""
        if tell:
            for worker in self.workers:
                if worker.alive():
                    worker.send(f"BROKEN={self.round}\n")
        self.until(
            lambda: all(not worker.alive() or worker.left >= self.round for worker in self.workers), "ranks to leave"
        )
        return [worker if worker.alive() else None for worker in self.workers]

    def replace(self, rank, by=signal.SIGKILL):
        """Kills a rank; the others go on with a new process in its place."""
        self.until(self.all_kept, "ranks that can be kept")
        self.workers[rank].kill(by)
        killed = time.monotonic()
        self.begin(self.break_round())
        return killed

    def look(self, timeout):
        for key, _ in self.selector.select(timeout):
            key.data.read()

    def until(self, done, what, deadline=DEADLINE):
        end = time.monotonic() + deadline
        while not done():
            assert time.monotonic() < end, f"waited for {what}\n{self.outputs()}"
            self.look(0.02)

    def all_kept(self):
        return all(worker.kept for worker in self.workers)

    def until_step(self, step):
        self.until(lambda: self.ended() or all(worker.step >= step for worker in self.workers), f"step {step}")

    def ended(self):
        return any(not worker.alive() for worker in self.workers)

    def finish(self):
        """All ranks of the round end by themselves, well."""
        self.until(lambda: all(not worker.alive() for worker in self.workers), "the end")
        codes = [worker.process.returncode for worker in self.workers]
        assert codes == [0] * len(codes), f"{codes}\n{self.outputs()}"

    def outputs(self):
        return "\n".join(
            f"--- worker {worker.number}, rank {worker.rank}, {worker.process and worker.process.poll()}\n"
            + worker.output.read_text()[-3000:]
            for worker in self.all
            if worker.output.exists()
        )

    def close(self):
        for worker in self.all:
            if worker.process is not None and worker.alive():
                worker.kill()
            worker.socket.close()
        self.selector.close()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()
