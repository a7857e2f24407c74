# SPDX-License-Identifier: Apache-2.0
"""Agents whose listener for torch's TCPStore is what a test talks to; their workers only wait."""

import contextlib
import dataclasses
import subprocess

from conftest import DDPRUN, agent_of, clean_environment, free_port, wait_for

LISTENS_S = 60
ENDS_S = 60


@dataclasses.dataclass
class Agent:
    warden: int  # the process that was started
    host: str
    port: int

    @property
    def pid(self):
        return agent_of(self.warden)


@contextlib.contextmanager
def listening_agents(folder, nodes=1):
    """The agents of a new run of so many nodes at 127.0.0.1, each with a listener. At the end the run must end well."""
    command = [DDPRUN, "--no-python"]
    if nodes > 1:
        command += ["--nnodes", str(nodes), "--master-addr", "127.0.0.1", "--master-port", str(free_port())]
        command += ["--worker-store", "agent"]
    else:
        command += ["--standalone"]
    at = f"{folder}/at$GROUP_RANK"
    waits = f'echo "$MASTER_ADDR $MASTER_PORT" > {at}.part; mv {at}.part {at}; while [ ! -e {folder}/end ]; do sleep 0.05; done'
    errors = [folder / f"err{rank}" for rank in range(nodes)]
    started = []
    for rank in range(nodes):
        of_node = ["--node-rank", str(rank)] if nodes > 1 else []
        with open(errors[rank], "w") as err:
            started.append(
                subprocess.Popen(
                    [*command, *of_node, "sh", "-c", waits],
                    env=clean_environment(),
                    stdout=err,
                    stderr=err,
                    stdin=subprocess.DEVNULL,
                )
            )
    files = [folder / f"at{rank}" for rank in range(nodes)]
    try:
        wait_for("the agents' listeners", lambda: all(file.exists() for file in files), LISTENS_S)
        agents = []
        for process, file in zip(started, files):
            host, port = file.read_text().split()
            agents.append(Agent(process.pid, host, int(port)))
        yield agents
    finally:
        (folder / "end").touch()
        codes = []
        for process in started:
            try:
                codes.append(process.wait(ENDS_S))
            except subprocess.TimeoutExpired:
                process.kill()
                codes.append(process.wait())
    assert not any(codes), (codes, [file.read_text() for file in errors])
