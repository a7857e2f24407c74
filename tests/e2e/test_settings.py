# SPDX-License-Identifier: Apache-2.0
"""Flags and variables that stand in files: --config and --env-file."""

import os

import pytest
from conftest import DDPRUN, TOKEN, clean_environment, finish_all, processes_of_this_session, run, start

SHOW = ["sh", "-c", 'echo "A=$A MASTER_ADDR=$MASTER_ADDR TOKEN=$DDPRUN_TOKEN"']


def without_token():
    env = clean_environment()
    del env["DDPRUN_TOKEN"]
    return env


def test_a_run_that_is_all_in_a_file(tmp_path):
    config = tmp_path / "ddprun.yaml"
    config.write_text(
        "standalone: true\n"
        "nproc-per-node: 2\n"
        "env: {A: from-config}\n"
        "program: [sh, -c, 'echo rank $RANK of $WORLD_SIZE $A']\n"
    )
    done = run([DDPRUN, "--config", config])
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] rank 0 of 2 from-config", "[1] rank 1 of 2 from-config"]
    done = run([DDPRUN, "--config", config, "--nproc-per-node", "1"], env=clean_environment(A="mine"))
    assert done.stdout == "[0] rank 0 of 1 mine\n"


def test_an_env_file_says_where_the_master_is(tmp_path, port):
    """And brings the secret, which no worker sees."""
    file = tmp_path / ".env"
    file.write_text(f"# node 0\nMASTER_ADDR=127.0.0.1\nexport MASTER_PORT={port}\nA='x y'\nDDPRUN_TOKEN={TOKEN}\n")
    file.chmod(0o600)
    nodes = [DDPRUN, "--env-file", file, "--nnodes", "2", "--node-rank"]
    with_file = start([*nodes, "0", *SHOW], env=without_token())
    other = start(
        [DDPRUN, "--nnodes=2", "--node-rank=1", "--master-addr=127.0.0.1", f"--master-port={port}", "true"],
    )
    results = finish_all([with_file, other])
    assert [code for code, _, _ in results] == [0, 0], results
    assert "A=x y MASTER_ADDR=127.0.0.1 TOKEN=\n" in results[0][1]


def test_a_secret_that_others_can_read_is_refused(tmp_path):
    file = tmp_path / ".env"
    file.write_text(f"DDPRUN_TOKEN={TOKEN}\n")
    file.chmod(0o644)
    done = run([DDPRUN, "--env-file", file, "--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", "true"], env=without_token())
    assert done.returncode == 2
    assert "chmod 600" in done.stderr and TOKEN not in done.stderr


@pytest.mark.parametrize(
    ("flag", "text", "says"),
    [
        ("--config", "nproc-per-nod: 2\n", ["nproc-per-nod", "did you mean nproc-per-node?"]),
        ("--config", "nnodes: [\n", ["line 2", "not YAML"]),
        ("--config", "nnodes: x\n", ["nnodes 'x'"]),
        ("--config", "x" * (2 << 20), ["is it a file of settings?"]),
        ("--env-file", "A=1\nB\n", ["line 2", "KEY=VALUE"]),
        ("--env-file", None, ["No such file"]),
    ],
)
def test_what_is_wrong_in_a_file_is_one_sentence(tmp_path, flag, text, says):
    file = tmp_path / "settings"
    if text is not None:
        file.write_text(text)
    done = run([DDPRUN, flag, file, "true"])
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert str(file) in done.stderr
    for word in says:
        assert word in done.stderr


def test_a_file_may_be_a_pipe(tmp_path):
    reader, writer = os.pipe()
    os.write(writer, b"program: [echo, hello]\n")
    os.close(writer)
    done = run([DDPRUN, "--config", f"/proc/self/fd/{reader}"], pass_fds=[reader])
    assert done.stdout == "[0] hello\n", done.stderr


def test_nothing_is_left_behind():
    assert not processes_of_this_session()
