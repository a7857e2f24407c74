# SPDX-License-Identifier: Apache-2.0
"""NCCL's RAS service is asked for the state of the job where a worker hangs. The service here is a thread of that name in a
program of ours, with the words of NCCL's."""

import os
import pathlib
import sys

import pytest

from conftest import BIN, DDPRUN, clean_environment, free_port, run, start

SERVICE = """
import os, socket, sys, threading

def serve():
    with open("/proc/self/task/%d/comm" % threading.get_native_id(), "w") as file:
        file.write(sys.argv[1])
    server = socket.create_server(("127.0.0.1", int(sys.argv[2])))
    print("serves", flush=True)
    while True:
        client, _ = server.accept()
        open(sys.argv[3] + "/connected", "w").close()
        lines = client.makefile("rw", newline="\\n")
        assert lines.readline() == "CLIENT PROTOCOL 2\\n"
        lines.write("SERVER PROTOCOL 2\\n"); lines.flush()
        assert lines.readline().startswith("TIMEOUT ")
        lines.write("OK\\n"); lines.flush()
        assert lines.readline() == "VERBOSE STATUS\\n"
        lines.write("Job summary\\n===========\\n\\n  #0-0 (27a079b828ff1a75) MISMATCH\\n    1 ranks have not called\\n")
        lines.close()
        client.close()

if int(os.environ.get("RANK", 0)) == 0:
    threading.Thread(target=serve, daemon=True).start()
threading.Event().wait()
"""
WORDS = ["Job summary", "===========", "  #0-0 (27a079b828ff1a75) MISMATCH", "    1 ranks have not called"]


def stacks(folder, thread="NCCL RAS", **variables):
    port = free_port()
    (folder / "service.py").write_text(SERVICE)
    variables.setdefault("NCCL_RAS_ADDR", f"127.0.0.1:{port}")
    process = start([sys.executable, folder / "service.py", thread, port, folder], env=clean_environment(**variables))
    try:
        assert process.stdout.readline() == "serves\n"
        return run([BIN / "ddprun-stacks", process.pid, folder / "stacks"]).stdout.splitlines()
    finally:
        process.kill()
        process.communicate()


def test_the_state_of_the_job_follows_the_stacks(tmp_path):
    lines = stacks(tmp_path)
    heading = next(i for i, line in enumerate(lines) if line.startswith("  NCCL's RAS service at 127.0.0.1:"))
    assert [line[4:] for line in lines[heading + 1 :]] == WORDS
    assert any(line.startswith("  thread ") for line in lines[:heading])
    assert WORDS[2] in (tmp_path / "stacks").read_text()


@pytest.mark.parametrize("variables", [{"NCCL_RAS_ENABLE": "0"}, {"thread": "another"}], ids=["off", "without NCCL"])
def test_nobody_is_connected_to(tmp_path, variables):
    lines = stacks(tmp_path, **variables)
    assert not any("RAS service" in line for line in lines)
    assert not (tmp_path / "connected").exists()


def test_one_that_does_not_answer_is_not_spoken_of(tmp_path):
    lines = stacks(tmp_path, NCCL_RAS_ADDR=f"127.0.0.1:{free_port()}")
    assert lines and not any("RAS service" in line for line in lines)


def test_a_hang_shows_it(tmp_path):
    port = free_port()
    (tmp_path / "service.py").write_text(SERVICE)
    command = [DDPRUN, "--standalone", "--nproc-per-node", 2, "--heartbeat-timeout", 2, "--log-dir", tmp_path / "logs"]
    command += ["--redirects", 3, "--no-python", sys.executable, tmp_path / "service.py", "NCCL RAS", port, tmp_path]
    done = run(command, env=clean_environment(NCCL_RAS_ADDR=f"127.0.0.1:{port}"))
    assert done.returncode == 124, done.stderr
    files = [path.read_text() for path in pathlib.Path(tmp_path / "logs").rglob("stacks.txt")]
    assert sum("NCCL's RAS service" in text for text in files) == 1, os.listdir(tmp_path)
    assert done.stderr.count(WORDS[2].strip()) >= 1
