# SPDX-License-Identifier: Apache-2.0
"""The head of `ddprun -H` on one machine: nodes that lie, what it shows of other machines' bytes, what its nodes inherit,
and what it keeps in memory. Hosts are stand-ins: a --rsh command that runs its words here."""

import json
import os
import pathlib
import re
import resource
import signal
import socket
import sys

import pytest
from conftest import DDPRUN, TOKEN, clean_environment, finish_all, processes_of_this_session, run, start


def script(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


@pytest.fixture
def here(tmp_path):
    """A --rsh command for hosts of any name: all of them are this machine. A shell parses the words, as behind ssh."""
    return script(tmp_path / "here", 'shift\neval "exec $*"\n')


def head(rsh, hosts, *arguments):
    return [DDPRUN, "-H", hosts, "--rsh", rsh, "--master-addr", "127.0.0.1", *arguments]


# ---- Nodes that lie


@pytest.fixture(scope="module")
def hello():
    """The line that a ddprun of this version greets its head with."""
    done = run([DDPRUN, "--control-pipe"])
    assert done.stdout.startswith("\x1em{") and '"type":"hello"' in done.stdout, done
    return done.stdout.split("\n")[0]  # splitlines() would part it at its mark


SERVING = '{"type":"serving","port":29500}'
JOINED = '{"type":"joined"}'
FINISHED = '{"type":"finished","run_id":"yesterday","round":1,"nodes":2,"world_size":2}'
LIES = {
    "ends at once": [],
    "ends when it is told to go": ["go"],
    "claims to serve": ["go", SERVING],
    "claims to be in the run": ["go", SERVING, JOINED],
    "claims another run's success": ["go", SERVING, JOINED, FINISHED],
}


@pytest.mark.parametrize("liar", ["n1", "n2"])
@pytest.mark.parametrize("lie", LIES)
def test_a_node_that_only_says_that_it_succeeded_is_not_believed(tmp_path, hello, liar, lie):
    """It greets as ddprun does, says what `lie` has, and ends with exit code 0 without having run anything."""
    says = LIES[lie]
    text = f"printf '%s\\n' '{hello}'\n"
    if "go" in says:
        text += """while read -r line; do case $line in *'"type":"go"'*) break ;; esac; done\n"""
    text += "".join(f"printf '\\036m%s\\n' '{message}'\n" for message in says if message != "go")
    script(tmp_path / "liar", text + "exit 0\n")
    rsh = script(tmp_path / "rsh", f'host=$1\nshift\n[ "$host" = {liar} ] && exec {tmp_path}/liar\neval "exec $*"\n')
    done = run(head(rsh, "n1,n2", "--term-timeout", "1", "--join-timeout", "20", "true"), timeout=90)
    assert done.returncode == 1, done
    assert done.stderr.count("run failed") == 1, done.stderr
    assert re.search(rf"{liar}\b.* ended with exit code 0", done.stderr), done.stderr


@pytest.mark.parametrize("hosts", ["localhost", "n1", "n1,n2", "localhost,n2", "n1:2,n2:2"])
def test_a_run_that_finished_ends_with_0(here, hosts):
    done = run(head(here, hosts, "sh", "-c", "echo $RANK"))
    assert done.returncode == 0 and done.stderr == "", done
    assert len(done.stdout.splitlines()) == sum(int(host.partition(":")[2] or 1) for host in hosts.split(","))


# ---- What is shown


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_the_longest_line_arrives_whole_with_its_prefix(here, stream):
    """1 MiB is the longest line of a worker's; a node sends it with a prefix and a mark."""
    program = f"import sys; sys.{stream}.write('x' * (1 << 20) + chr(10) + 'y' + chr(10))"
    done = run(head(here, "n1,n2", sys.executable, "-c", program))
    assert done.returncode == 0, done.stderr[-2000:]
    lines = getattr(done, stream).splitlines()
    assert sorted((line[:7], len(line)) for line in lines) == [
        ("[n1:0] ", 8),
        ("[n1:0] ", 7 + (1 << 20)),
        ("[n2:1] ", 8),
        ("[n2:1] ", 7 + (1 << 20)),
    ]


def test_a_remote_stderr_cannot_send_escapes_to_the_terminal(tmp_path):
    rsh = script(tmp_path / "rsh", 'shift\neval "$*"\ncode=$?\nprintf "\\033]0;owned\\007\\033[2Jseen\\n" >&2\nexit $code\n')
    done = run(head(rsh, "n1,n2", "true"))
    assert done.returncode == 0, done
    assert "seen" in done.stderr and "\x1b" not in done.stderr and "\x07" not in done.stderr, done


# ---- What workers inherit

ATTRIBUTES = """
import json, os, re, resource
status = open("/proc/self/status").read()
facts = {name: re.search(f"^{name}:[ \\t]*(.*)$", status, re.M).group(1)
         for name in ("SigBlk", "SigIgn", "CapEff", "NoNewPrivs", "Seccomp", "Cpus_allowed_list", "Umask", "Groups")}
facts["limits"] = open("/proc/self/limits").read()
for name in ("oom_score_adj", "timerslack_ns", "coredump_filter"):
    try:
        facts[name] = open(f"/proc/self/{name}").read()
    except OSError:
        pass
facts["nice"] = os.nice(0)
facts["scheduler"] = os.sched_getscheduler(0)
print("facts", json.dumps(facts))
"""


def test_workers_of_this_machine_inherit_what_the_head_was_started_with(tmp_path):
    """As under torchrun: what the head or its agents need for themselves (more files, signals) is not the workers'."""
    (tmp_path / "attributes.py").write_text(ATTRIBUTES)
    program = [sys.executable, tmp_path / "attributes.py"]

    def lower():
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    def facts(*before):
        done = run([*before, *program], preexec_fn=lower)
        assert done.returncode == 0, done
        lines = [line for line in done.stdout.splitlines() if "facts " in line]
        assert len(lines) == 1, lines
        return json.loads(lines[0].partition("facts ")[2])

    expected = facts()
    assert re.search(r"Max open files +300 ", expected["limits"]), expected
    assert facts(DDPRUN, "--standalone") == expected
    assert facts(DDPRUN, "-H", "localhost") == expected
    assert facts(DDPRUN, "-H", "localhost,127.0.0.1", "--nnodes", "1") == expected


# ---- The secret


def places_of(secret, pid):
    """Where in the memory of process `pid` the secret stands, as digits or as bytes."""
    found = []
    for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
        first, last = (int(end, 16) for end in line.split()[0].split("-"))
        if "r" not in line.split()[1] or "[v" in line:
            continue
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(first)
            try:
                text = memory.read(last - first)
            except OSError:
                continue
        for form in (secret.encode(), secret.upper().encode(), bytes.fromhex(secret)):
            if form in text:
                found.append(f"{line.split()[0]} {line.split()[5:] or 'no name'}")
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="reading other processes' memory needs root")
@pytest.mark.parametrize("source", ["variable", "env file", "quoted in an env file", "token file"])
def test_no_process_keeps_the_secret_while_the_run_goes_on(here, tmp_path, source):
    """Not the head once the nodes have it, nor the nodes' processes once they have their certificates."""
    env, flags = clean_environment(), []
    file = tmp_path / "file"
    if source != "variable":
        del env["DDPRUN_TOKEN"]
        quote = '"' if "quoted" in source else ""
        file.write_text(f"{TOKEN}\n" if source == "token file" else f"A=b\nDDPRUN_TOKEN={quote}{TOKEN}{quote}\nC=d\n")
        file.chmod(0o600)
        flags = ["--token-file" if source == "token file" else "--env-file", file]
    env["LONG"] = "x" * 100_000  # more than a pipe takes at once
    process = start(head(here, "n1,n2", *flags, "sh", "-c", "echo up; exec sleep 600"), env=env)
    try:
        assert "up" in process.stdout.readline()
        assert "up" in process.stdout.readline()
        seen, places = 0, {}
        for pid, command in processes_of_this_session():
            if os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(DDPRUN):
                seen += 1
                if found := places_of(TOKEN, int(pid)):
                    places[f"{pid} {command}"] = found
        assert seen == 7, "the head, and warden, keeper and agent of each node"
        assert not places
    finally:
        process.send_signal(signal.SIGTERM)
        finish_all([process], 60)


# ---- Ports


def test_two_runs_at_once_on_one_machine_do_not_meet(here):
    """Each with a secret of its own, while something else has torchrun's port."""
    with socket.socket() as other:
        try:
            other.bind(("127.0.0.1", 29500))
            other.listen()
        except OSError:
            pass  # taken already: as well
        wait = "until [ -e stop ]; do sleep 0.05; done; echo $RANK of $WORLD_SIZE"
        runs = [
            start(head(here, "n1,n2", "sh", "-c", f"echo up; {wait}"), env=clean_environment(DDPRUN_TOKEN=os.urandom(32).hex()), cwd=here.parent)
            for _ in range(2)
        ]
        for process in runs:
            for _ in range(2):
                assert "up" in process.stdout.readline()
        (here.parent / "stop").touch()
        for code, out, err in finish_all(runs, 60):
            assert code == 0 and "0 of 2" in out and "1 of 2" in out, (out, err)

