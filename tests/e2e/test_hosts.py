# SPDX-License-Identifier: Apache-2.0
"""`ddprun -H`: all nodes of a run by one command, over real ssh between real network namespaces."""

import contextlib
import os
import pathlib
import re
import shlex
import signal
import time

import pytest
from conftest import BIN, DDPRUN, TOKEN, clean_environment, finish_all, run, start, wait_for
from ssh_hosts import ssh_hosts  # noqa: F401  (a fixture)
from hosts import three_hosts  # noqa: F401  (a fixture)


def environment(ssh_hosts, **more):  # noqa: F811
    env = clean_environment(**more)
    env["PATH"] = f"{ssh_hosts.path}:{env['PATH']}"
    return env


def head(ssh_hosts, hosts, *arguments):  # noqa: F811
    """The command of a head on the first host."""
    return [*ssh_hosts.hosts[0].prefix, DDPRUN, "-H", hosts, *arguments]


SHOW = 'printf "%s|" "$RANK" "$WORLD_SIZE" "$LOCAL_RANK" "$MASTER_ADDR" "$PWD" "$FOO" "$@"; echo'


def test_two_remote_hosts_run_as_if_they_were_here(ssh_hosts, tmp_path):  # noqa: F811
    odd = ["a b", "it's", '"$HOME"', "", "back\\slash", "new\nline", "ümläut*"]
    result = run(
        head(ssh_hosts, "10.78.0.2:1,10.78.0.3:2", "sh", "-c", SHOW, "show", *odd),
        env=environment(ssh_hosts, FOO="bar baz"),
        cwd=tmp_path,
    )
    assert result.returncode == 0, result
    words = "|".join(["10.78.0.2", str(tmp_path), "bar baz", *odd]) + "|"
    lines = result.stdout
    for host, rank, local_rank in (("10.78.0.2", 0, 0), ("10.78.0.3", 1, 0), ("10.78.0.3", 2, 1)):
        first = f"[{host}:{rank}] {rank}|3|{local_rank}|{words}".split("\n")[0]
        assert first in lines.splitlines(), result
    assert lines.count("line|ümläut*|") == 3, result
    assert result.stderr == "", result


def test_this_machine_is_a_host_like_any_other(ssh_hosts):  # noqa: F811
    """The first node is here; the other finds it at the address that ssh came from."""
    result = run(head(ssh_hosts, "localhost,10.78.0.2", "sh", "-c", 'echo "$RANK at $MASTER_ADDR"'), env=environment(ssh_hosts))
    assert result.returncode == 0, result
    assert sorted(re.sub(r"^\[.*?\] ", "", line) for line in result.stdout.splitlines()) == [
        "0 at 10.78.0.1",
        "1 at 10.78.0.1",
    ]


def test_the_verdict_is_shown_once_and_the_exit_code_is_the_causes(ssh_hosts):  # noqa: F811
    script = 'test "$RANK" = 1 && { echo broken >&2; exit 7; }; exec sleep 600'
    result = run(head(ssh_hosts, "10.78.0.2,10.78.0.3", "sh", "-c", script), env=environment(ssh_hosts))
    assert result.returncode == 7, result
    assert result.stderr.count("run failed") == 1, result
    assert re.search(r"run failed: rank 1 \(local rank 0 on host 10.78.0.3, .* exited with code 7", result.stderr), result
    assert "[10.78.0.3:1] broken" in result.stderr.splitlines(), result


def test_the_secret_is_in_nobodys_command_line_or_environment(ssh_hosts):  # noqa: F811
    process = start(
        head(ssh_hosts, "10.78.0.2,10.78.0.3", "sh", "-c", "echo running; exec sleep 600"), env=environment(ssh_hosts)
    )
    assert "running" in process.stdout.readline()
    assert "running" in process.stdout.readline()
    texts = []
    for pid, _ in ssh_hosts.processes():
        for name in ("cmdline", "environ"):
            try:
                texts.append(pathlib.Path(f"/proc/{pid}/{name}").read_bytes())
            except OSError:
                pass
    process.send_signal(signal.SIGTERM)
    [(code, _, err)] = finish_all([process], 60)
    assert code == 128 + signal.SIGTERM, err
    assert len(texts) > 10
    assert not [text for text in texts if TOKEN.encode() in text]


@pytest.mark.parametrize(
    "trouble, words",
    [
        ("nobody", r"10\.78\.0\.9 cannot be reached by ssh: .*(No route|timed out).*; check that the host is up"),
        ("refused", r"10\.78\.0\.3 cannot be reached by ssh: .*Connection refused.*; no ssh server listens"),
        ("unknown key", r"10\.78\.0\.3 cannot be reached by ssh: Host key verification failed\.; its key is not known"),
        ("other key", r"10\.78\.0\.3 cannot be reached by ssh: .*; its key is not the one known here: .*ssh-keygen -R"),
        ("password", r"10\.78\.0\.3 cannot be reached by ssh: .*Permission denied.*ssh-copy-id 10\.78\.0\.3"),
        ("no name", r"no-such-host cannot be reached by ssh: .*Could not resolve.*check the name"),
        ("no ddprun", r"10\.78\.0\.[23] does not find what --launch-agent names, '/no/ddprun': .*give the path"),
        ("other program", r"10\.78\.0\.[23]: ssh ended with exit code 2 before ddprun there said a word: .*unknown"),
        ("no folder", r"ddprun on 10\.78\.0\.2 ended with exit code 1: the working folder /gone cannot be entered"),
        ("no program", r"ddprun on 10\.78\.0\.2 ended with exit code 127: there is no program 'nosuch'"),
    ],
)
def test_what_goes_wrong_is_one_sentence_and_ends_all(ssh_hosts, tmp_path, trouble, words):  # noqa: F811
    other, more, program = "10.78.0.3", [], ["sh", "-c", "echo began; exec sleep 600"]
    key = (ssh_hosts.folder / "stranger_key.pub").read_text()
    known = ssh_hosts.known_hosts.read_text().splitlines()
    if trouble == "nobody":
        other = "10.78.0.9"
    elif trouble == "no name":
        other = "no-such-host"
    elif trouble == "refused":
        ssh_hosts.servers[1].terminate()
        ssh_hosts.servers[1].wait(timeout=30)
    elif trouble == "unknown key":
        ssh_hosts.known_hosts.write_text("\n".join(known[:2]) + "\n")
    elif trouble == "other key":
        ssh_hosts.known_hosts.write_text("\n".join([*known[:2], "10.78.0.3 " + key]))
    elif trouble == "password":
        ssh_hosts.config.write_text("Match host 10.78.0.3\n  IdentityFile %s\n  IdentitiesOnly yes\n  UserKnownHostsFile %s\n"
                                    % (ssh_hosts.folder / "stranger_key", ssh_hosts.known_hosts)
                                    + "Match host !10.78.0.3,*\n" + ssh_hosts.config.read_text().replace("Host *\n", ""))
    elif trouble == "no ddprun":
        more = ["--launch-agent", "/no/ddprun"]
    elif trouble == "other program":
        more = ["--launch-agent", shlex.quote(str(BIN / "ddprun-rendezvous"))]
    elif trouble == "no folder":
        more = ["--wdir", "/gone"]
    elif trouble == "no program":
        program = ["nosuch"]
    result = run(head(ssh_hosts, f"10.78.0.2,{other}", *more, *program), env=environment(ssh_hosts), timeout=60)
    assert result.returncode == (127 if trouble == "no program" else 1), result
    assert re.search("ddprun: run failed: " + words, result.stderr), result.stderr
    assert result.stderr.count("run failed") == 1 and "began" not in result.stdout, result
    wait_for("the end of all on the hosts", lambda: not ssh_hosts.processes(), 10)


def test_a_run_of_fewer_nodes_goes_on_without_a_host(ssh_hosts):  # noqa: F811
    result = run(
        head(ssh_hosts, "no-such-host,10.78.0.2,10.78.0.3", "--nnodes", "2:3", "sh", "-c", "echo $RANK of $WORLD_SIZE"),
        env=environment(ssh_hosts),
        timeout=60,
    )
    assert result.returncode == 0, result
    assert "going on without it" in result.stderr and "no-such-host" in result.stderr, result
    assert "[10.78.0.2:0] 0 of 2" in result.stdout and "[10.78.0.3:1] 1 of 2" in result.stdout, result


STUBBORN = 'trap "echo polite" INT TERM; echo running; while :; do sleep 0.1; done'


def test_one_interrupt_is_polite_and_the_second_is_now(ssh_hosts):  # noqa: F811
    process = start(head(ssh_hosts, "10.78.0.2,10.78.0.3", "sh", "-c", STUBBORN), env=environment(ssh_hosts))
    for _ in range(2):
        assert "running" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    heard = [process.stdout.readline(), process.stdout.readline()]
    assert all("polite" in line for line in heard), heard
    began = time.monotonic()

    time.sleep(0.5)  # until then it is taken for an echo of the first; and a third one 0.5 s later waits for nothing
    process.send_signal(signal.SIGINT)
    [(code, _, err)] = finish_all([process], 60)
    assert code == 128 + signal.SIGINT and time.monotonic() - began < 8, err  # --term-timeout is 10 s
    assert err.count("ddprun: run ended: ddprun got SIGINT") == 1, err
    assert err.count("a second signal kills them at once") == 1, err
    wait_for("the end of all on the hosts", lambda: not ssh_hosts.processes(), 10)


def pids(ssh_hosts, pattern):  # noqa: F811
    return [pid for pid, command in ssh_hosts.processes() if re.search(pattern, command)]


def parents(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def wardens_and_agents(ssh_hosts):  # noqa: F811
    """A warden's child is a keeper, and its child the agent."""
    every = [pid for pid in pids(ssh_hosts, r"ddprun --control-pipe|^keeper") if os.readlink(f"/proc/{pid}/exe") == DDPRUN]
    wardens = [pid for pid in every if parents(pid) not in every]
    keepers = [pid for pid in every if parents(pid) in wardens]
    return wardens, keepers, [pid for pid in every if parents(pid) in keepers]


VICTIMS = (
    "head",
    "ssh",
    "ssh of the second host",
    "login",
    "agent",
    "keeper",
    "warden",
    "warden and agent",
    "head and an agent that is stopped",
    "head and a keeper that is stopped",
)


@pytest.mark.parametrize("victim", VICTIMS)
def test_nothing_is_alive_a_second_after_a_kill(ssh_hosts, victim):  # noqa: F811
    """Workers that ignore SIGTERM, one with a session of its own."""
    script = 'trap "" TERM; echo running; setsid sleep 600 & exec sleep 600'
    patience = ["--term-timeout", 3] if "second" in victim else []
    process = start(head(ssh_hosts, "10.78.0.2,10.78.0.3", *patience, "sh", "-c", script), env=environment(ssh_hosts))
    for _ in range(2):
        assert "running" in process.stdout.readline()
    wardens, keepers, agents = wardens_and_agents(ssh_hosts)
    assert len(wardens) == len(keepers) == len(agents) == 2, ssh_hosts.processes()
    clients = pids(ssh_hosts, r"^(\S*/)?ssh -F")
    assert len(clients) == 2, ssh_hosts.processes()
    if "stopped" in victim:
        os.kill((agents if "agent" in victim else keepers)[0], signal.SIGSTOP)
    doomed = {
        "head": [process.pid],
        "ssh": clients,
        "ssh of the second host": clients[1:],
        "login": pids(ssh_hosts, r"^sshd: "),
        "agent": agents,
        "keeper": keepers,
        "warden": wardens,
        "warden and agent": wardens + agents,
        "head and an agent that is stopped": [process.pid],
        "head and a keeper that is stopped": [process.pid],
    }[victim]
    for pid in doomed:
        with contextlib.suppress(ProcessLookupError):  # what was killed first may have ended it
            os.kill(pid, signal.SIGKILL)
    if "second" in victim:  # the rest ends by the run's own rules, within --term-timeout
        [(code, _, err)] = finish_all([process], 60)
        assert code == 1 and re.search(r"run ended: node 10\.78\.0\.[23] .*left the run: its connection", err), err
        wait_for("the end of all on the hosts", lambda: not ssh_hosts.processes(), 5)
        return
    wait_for(
        "the end of all on the hosts",
        lambda: not pids(ssh_hosts, "sleep 600|ddprun|ssh -F"),
        1 if "ssh" not in victim else 5,
    )
    [(code, _, err)] = finish_all([process], 30)
    assert code != 0, err


def test_any_command_can_stand_for_ssh(ssh_hosts, tmp_path):  # noqa: F811
    """One that executes its words, without a shell between."""
    script = tmp_path / "enter"
    cases = "".join(f'{host.address}) shift; exec {" ".join(host.prefix)} "$@";;\n' for host in ssh_hosts.hosts)
    script.write_text(f'#!/bin/sh\ncase "$1" in\n{cases}*) echo "$1 is unknown to me" >&2; exit 3;;\nesac\n')
    script.chmod(0o755)
    env = clean_environment()
    env["PATH"] = f"{env['PATH']}:{BIN}"  # where the path of ddprun has blanks, which are quoted for a shell
    rsh = ["--rsh", shlex.quote(str(script)), "sh", "-c", "echo $RANK $MASTER_ADDR"]
    result = run([DDPRUN, "-H", "10.78.0.2,10.78.0.3", *rsh], env=env)
    assert result.returncode == 0, result
    assert sorted(result.stdout.splitlines()) == ["[10.78.0.2:0] 0 10.78.0.2", "[10.78.0.3:1] 1 10.78.0.2"]
    result = run([DDPRUN, "-H", "10.78.0.2,10.78.0.7", *rsh], env=env)
    assert result.returncode == 1, result
    assert "10.78.0.7: the --rsh command ended with exit code 3" in result.stderr, result
    assert "10.78.0.7 is unknown to me" in result.stderr, result
