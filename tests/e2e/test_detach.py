# SPDX-License-Identifier: Apache-2.0
"""`ddprun --detach`, `ddpctl attach` and `ddpctl runs` as users type them."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import pytest
from conftest import BIN, BUILD, DDPRUN, clean_environment, free_port, run, start, wait_for

DDPCTL = str(BIN / "ddpctl")
LEAVES = re.compile(r"ddprun: the run goes on in the background; ddpctl attach shows it, ddpctl stop ends it\n\Z")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user without runs; those that a test leaves are ended."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield tmp_path / "state" / "ddprun" / "runs"
    for one in runs()["runs"]:
        if one["state"] in ("running", "starting"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(one["pid"], signal.SIGTERM)
    wait_for("the runs' ends", lambda: all(one["state"] in ("ended", "lost") for one in runs()["runs"]))


def ctl(*words, **more):
    return run([DDPCTL, *words], **more)


def runs():
    listed = ctl("runs", "--json")
    assert listed.returncode == 0, listed.stderr
    return json.loads(listed.stdout)


def detach(*words, **more):
    started = run([DDPRUN, "--detach", *words], **more)
    assert started.returncode == 0, started.stderr
    assert LEAVES.search(started.stderr), started.stderr
    name = started.stdout.removesuffix("\n")
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{6}", name), started.stdout
    return name


def state_of(name):
    return next(one for one in runs()["runs"] if one["name"] == name)


def test_a_run_goes_on_without_its_shell_and_is_shown_to_its_end(home, tmp_path):
    go_on = tmp_path / "go-on"
    name = detach("--nproc-per-node", "2", "sh", "-c", f"echo before; until [ -e {go_on} ]; do sleep 0.05; done; echo after")
    assert state_of(name)["state"] == "running"
    attached = start([DDPCTL, "attach"])
    lines = sorted(attached.stdout.readline() for _ in range(2))
    assert lines == ["[0] before\n", "[1] before\n"]
    go_on.touch()
    out, err = attached.communicate(timeout=60)
    assert attached.returncode == 0
    assert sorted(out.splitlines())[-2:] == [line.replace("before", "after").strip() for line in lines]
    assert f"ddpctl: run {name} has ended: exit code 0\n" in err
    ended = state_of(name)
    assert (ended["state"], ended["exit_code"], ended["verdict"]) == ("ended", 0, "")


def test_ctrl_c_leaves_and_what_came_meanwhile_is_shown_next(home, tmp_path):
    steps = tmp_path / "steps"
    steps.mkdir()
    script = "i=0; while :; do if [ -e %s/$i ]; then echo line $i; i=$((i+1)); else sleep 0.02; fi; done" % steps
    name = detach("sh", "-c", script)

    def attach_until(last):
        attached = start([DDPCTL, "attach", name])
        lines = []
        while not lines or lines[-1] != f"line {last}":
            lines.append(re.search(r"line \d+", attached.stdout.readline())[0])
        attached.send_signal(signal.SIGINT)
        rest, _ = attached.communicate(timeout=60)
        assert (attached.returncode, rest) == (0, "")
        return lines

    for number in range(3):
        (steps / str(number)).touch()
    assert attach_until(2) == ["line 0", "line 1", "line 2"]
    for number in range(3, 6):
        (steps / str(number)).touch()
    assert attach_until(5) == ["line 3", "line 4", "line 5"]
    stopped = ctl("stop", "--wait", name)
    assert stopped.returncode == 143, stopped.stderr
    shown = ctl("attach", "--all", name)
    assert shown.returncode == 143
    assert re.findall(r"line \d+", shown.stdout) == [f"line {number}" for number in range(6)]
    assert "stopped by ddpctl" in state_of(name)["verdict"]


def test_commands_take_the_newest_run_where_none_is_named(home):
    old = detach("sleep", "1000")
    new = detach("sleep", "1000")
    for command, words in (("status", new), ("logs", None)):
        asked = ctl(command)
        assert asked.returncode == 0, asked.stderr
        assert words is None or (words in asked.stdout and old not in asked.stdout)
    for states in (["running", "ended"], ["ended", "ended"]):
        assert ctl("stop", "--wait").returncode == 143
        wait_for("the run's end", lambda: [state_of(name)["state"] for name in (old, new)] == states)
    none = ctl("stop")
    assert none.returncode == 2
    assert re.fullmatch(
        r"ddpctl: which rendezvous service\? give --rdzv-endpoint HOST\[:PORT\], or --master-addr; run \S+ has ended "
        r"\(exit code 143: .*\); ddpctl runs shows all\n",
        none.stderr,
    ), none.stderr
    table = ctl("runs").stdout.splitlines()
    assert [line.split()[0] for line in table] == ["NAME", new, old]
    assert all("sleep 1000" in line and "exit code 143" in line for line in table[1:])


def test_the_lines_of_a_run_that_has_ended(home):
    name = detach("--nproc-per-node", 2, "sh", "-c", "for i in 1 2 3; do echo line $i; done; echo warning >&2; exit $RANK")
    wait_for("the run's end", lambda: state_of(name)["state"] == "ended")
    whole = ctl("logs", name)
    assert whole.returncode == 0, whole.stderr
    for rank in (0, 1):
        lines = re.findall(rf"^\[{rank}\] (.*)$", whole.stdout, re.MULTILINE)
        assert sorted(lines) == ["line 1", "line 2", "line 3", "warning"]
    assert "rank 1 (local rank 1 on host" in whole.stdout
    last = ctl("logs", "-f", "--lines", 1, "--stdout", name)
    assert sorted(last.stdout.splitlines()) == ["[0] line 3", "[1] line 3"]
    refused = ctl("logs", "--rank", 0, name)
    assert refused.returncode == 1
    assert re.fullmatch(r"ddpctl: the run has ended, .*: leave --rank and --node out\n", refused.stderr)


def test_hosts_with_one_home_do_not_see_each_others_locks(home, tmp_path):
    shim = tmp_path / "shim.so"  # LD_PRELOAD takes no blank in a path
    shim.symlink_to(BUILD / "tests" / "libother_host_shim.so")
    there = clean_environment(LD_PRELOAD=str(shim))
    name = detach("sh", "-c", f"echo begins; while [ ! -e {tmp_path}/end ]; do sleep 0.1; done; echo ends")
    listed = json.loads(ctl("runs", "--json", env=there).stdout)["runs"]
    assert [(one["name"], one["state"]) for one in listed] == [(name, "running")]
    asked = ctl("status", env=there)
    assert asked.returncode == 1
    assert f"run {name} is on {listed[0]['host']}, and its service answers there alone" in asked.stderr
    past = detach("true")
    wait_for("its end", lambda: state_of(past)["state"] == "ended")
    for number in range(40):  # more than are kept
        shutil.copytree(home / past, home / f"{past}-{number}")
    detach("true", env=there)
    assert len(list(home.iterdir())) < 40
    attached = start([DDPCTL, "attach", "--all", name], env=there)
    assert "begins" in attached.stdout.readline()
    (tmp_path / "end").touch()
    rest, errors = attached.communicate(timeout=60)
    assert (attached.returncode, "ends" in rest) == (0, True), errors


def test_a_run_that_does_not_begin_says_why(home):
    missing = run([DDPRUN, "--detach", "no-such-program"])
    assert missing.returncode == 127
    assert missing.stdout == ""
    assert "no-such-program" in missing.stderr
    assert runs()["runs"][0]["exit_code"] == 127
    wrong = run([DDPRUN, "--detach", "--nproc-per-node", "x", "true"])
    assert wrong.returncode == 2
    assert len(runs()["runs"]) == 1  # before anything begins
    stdin = run([DDPRUN, "--detach", "--stdin", "0", "cat"])
    assert stdin.returncode == 2
    assert "--detach and --stdin contradict each other" in stdin.stderr


def test_a_failure_is_kept_with_its_cause(home):
    name = detach("--nproc-per-node", "2", "sh", "-c", "[ $RANK = 0 ] && sleep 1000; echo no such data >&2; exit 3")
    wait_for("the run's end", lambda: state_of(name)["state"] == "ended")
    assert state_of(name)["exit_code"] == 3
    assert "exited with code 3" in state_of(name)["verdict"]
    shown = ctl("attach")
    assert shown.returncode == 3
    assert "no such data" in shown.stderr
    assert f"ddpctl: run {name} has ended: exit code 3: " in shown.stderr


def test_a_run_ends_with_its_recorder(home):
    name = detach("sleep", "1000")
    os.kill(state_of(name)["pid"], signal.SIGKILL)
    wait_for("the run's end", lambda: state_of(name)["state"] == "lost")
    shown = ctl("attach", name)
    assert shown.returncode == 1
    assert f"run {name} has ended: killed with its recorder, or its machine ended" in shown.stderr


def test_who_gives_up_before_the_first_round_ends_the_run(home):
    """Ctrl-C, while a node waits for another one."""
    words = ["--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "job7", "sleep", "1000"]
    starting = start([DDPRUN, "--detach", *words])
    wait_for("the service", lambda: runs()["runs"] and runs()["runs"][0]["service"])
    assert runs()["runs"][0]["state"] == "starting"
    starting.send_signal(signal.SIGINT)
    starting.communicate(timeout=60)
    wait_for("the run's end", lambda: runs()["runs"][0]["state"] == "ended")
    assert runs()["runs"][0]["exit_code"] == 143


def test_the_folder_is_this_users_alone_and_bounded(home):
    name = detach("sh", "-c", "head -c 100000000 /dev/zero | tr '\\0' x | fold -w 1000; sleep 1000")
    folder = home / name
    wait_for("more output than is kept", lambda: len(list(folder.glob("output-*"))) > 10 and min(int(one.name[7:]) for one in folder.glob("output-*")) > 0)
    assert [oct(one.stat().st_mode & 0o777) for one in (home, folder)] == ["0o700", "0o700"]
    assert all(one.stat().st_mode & 0o077 == 0 for one in folder.iterdir())
    assert sum(one.stat().st_size for one in folder.glob("output-*")) <= 64 << 20


def test_a_full_disk_stops_no_worker(home, tmp_path):
    """Here a file may have 100 KB: the recorder cannot write on, and stops reading."""
    done = tmp_path / "done"
    script = f"head -c 3000000 /dev/zero | tr '\\0' x | fold -w 100; touch {done}"
    limited = ["bash", "-c", 'ulimit -f 100; exec "$@"', "bash", DDPRUN, "--detach", "sh", "-c", script]
    started = run(limited)
    assert started.returncode == 0, started.stderr
    wait_for("the worker's end", done.exists)
    name = started.stdout.strip()
    wait_for("the run's end", lambda: state_of(name)["state"] == "ended")
    assert state_of(name)["exit_code"] == 0
    assert "its last output could not be recorded: File too large" in state_of(name)["verdict"]


def test_a_run_that_cannot_start_says_so_and_leaves_no_folder(home, tmp_path):
    """Here a process may have eight descriptors, which is enough for the recorder alone."""
    limited = run(["bash", "-c", 'ulimit -n 8; exec "$@"', "bash", DDPRUN, "--detach", "true"])
    assert (limited.returncode, limited.stdout) == (1, "")
    assert limited.stderr == "ddprun: cannot start the run: Too many open files in this process; raise its limit (`ulimit -n`)\n"
    secret = tmp_path / "secret"
    secret.write_text("no secret")
    secret.chmod(0o600)
    env = clean_environment()
    del env["DDPRUN_TOKEN"]
    refused = run(
        [DDPRUN, "--detach", "--rdzv-endpoint", "127.0.0.1:29471", "--rdzv-id", "a", "--token-file", secret, "true"], env=env
    )
    assert refused.returncode == 1
    assert str(secret) in refused.stderr and len(refused.stderr.splitlines()) == 1, refused.stderr
    assert len(list(home.iterdir())) == 1


def test_a_folder_that_cannot_be_made_is_one_sentence():
    refused = run([DDPRUN, "--detach", "true"], env=clean_environment(XDG_STATE_HOME="/proc/none"))
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert re.fullmatch(
        r"ddprun: cannot make the folder of the run, /proc/none/ddprun/runs/\S+: No such file or directory; XDG_STATE_HOME names "
        r"another place than ~/.local/state\n",
        refused.stderr,
    ), refused.stderr
    homeless = {name: value for name, value in clean_environment().items() if name not in ("HOME", "XDG_STATE_HOME")}
    nowhere = run([DDPRUN, "--detach", "true"], env=homeless)
    assert nowhere.returncode == 2
    assert "neither HOME nor XDG_STATE_HOME is set" in nowhere.stderr


def test_a_service_on_the_network_is_asked_with_the_runs_secret(home):
    name = detach("--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "job7", "sleep", "1000")
    assert (home / name / "token").stat().st_mode & 0o777 == 0o600
    env = clean_environment()
    del env["DDPRUN_TOKEN"]
    asked = subprocess.run([DDPCTL, "status", "--rdzv-id", "job7"], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert asked.returncode == 0, asked.stderr
    assert "job7" in asked.stdout
    assert ctl("stop", "--wait", "job7").returncode == 143
    wait_for("the removal of the secret", lambda: not (home / name / "token").exists())


def test_a_run_that_waits_for_its_nodes_can_be_stopped(home):
    waits = ["--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1", "--master-port", str(free_port()), "sleep", "1000"]
    starting = start([DDPRUN, "--detach", *waits])
    wait_for("the run", lambda: runs()["runs"])
    stopped = ctl("stop", "--wait")
    assert stopped.returncode == 143, stopped.stderr
    out, _ = starting.communicate(timeout=60)
    assert (starting.returncode, out) == (143, "")
    assert runs()["runs"][0]["state"] == "ended"


def test_a_head_goes_on_with_its_nodes(home):
    name = detach("-H", "localhost:1,127.0.0.1:1", "--max-restarts", "0", "sh", "-c", "echo rank $RANK of $WORLD_SIZE; sleep 1000")
    status = ctl("status")
    assert status.returncode == 0, status.stderr
    assert name in status.stdout
    assert ctl("stop", "--wait").returncode == 143
    shown = ctl("attach")
    assert sorted(re.findall(r"rank \d of 2", shown.stdout)) == ["rank 0 of 2", "rank 1 of 2"]


def test_a_logout_that_would_end_the_run_is_told(home, tmp_path):
    """systemd's KillUserProcesses=yes, of a user who does not linger; and a bus that does not answer."""
    bus = tmp_path / "bin" / "busctl"
    bus.parent.mkdir()
    env = clean_environment(XDG_SESSION_ID="7")
    env["PATH"] = f"{bus.parent}:{env['PATH']}"
    for answer, told in (("echo b true", True), ("echo b false", False), ("exec sleep 1000", False)):
        bus.write_text(f"#!/bin/sh\n{answer}\n")
        bus.chmod(0o755)
        started = run([DDPRUN, "--detach", "true"], env=env)
        assert started.returncode == 0
        assert ("ends all processes of a user who logs out (KillUserProcesses=yes), this run too; to keep it: " in started.stderr) == told
        assert ("loginctl enable-linger" in started.stderr) == told


CUTTING_SSH = r"""#!/usr/bin/env python3
# An ssh whose connection breaks after some bytes; the machine behind it is this one.
import os, random, subprocess, sys
host, command = sys.argv[-2:]
assert host == "user@far", sys.argv
server = subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE)
left = random.choice([100, *range(200, 4000, 50)])  # 100: not even what it is about
while left > 0:
    data = os.read(server.stdout.fileno(), min(left, 1000))
    if not data:
        sys.exit(server.wait())
    os.write(1, data)
    left -= len(data)
server.kill()
sys.exit(255)
"""


def test_a_connection_that_breaks_loses_and_doubles_nothing(home, tmp_path, monkeypatch):
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(CUTTING_SSH)
    ssh.chmod(0o755)
    env = clean_environment()
    env["PATH"] = f"{ssh.parent}:{env['PATH']}"
    name = detach("sh", "-c", "for i in $(seq 2000); do echo line $i; done")
    shown = run([DDPCTL, "attach", "--host", "user@far", name], env=env)
    assert shown.returncode == 0, shown.stderr
    assert re.findall(r"line (\d+)", shown.stdout) == [str(number) for number in range(1, 2001)]
    assert shown.stderr.count("ddpctl: the connection to user@far is lost; trying again (Ctrl-C leaves)\n") >= 3
    assert shown.stderr.count("ddpctl: connected again\n") >= 3
    # From any terminal: it was shown, but for what a last connection that broke at its end could not tell of.
    again = re.findall(r"line (\d+)", ctl("attach", name).stdout)
    assert len(again) < 400 and again == [str(number) for number in range(2001 - len(again), 2001)]


def test_a_host_that_is_not_reached_is_one_failure(home, tmp_path):
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text("#!/bin/sh\necho 'ssh: connect to host far port 22: No route to host' >&2; exit 255\n")
    ssh.chmod(0o755)
    env = clean_environment()
    env["PATH"] = f"{ssh.parent}:{env['PATH']}"
    refused = run([DDPCTL, "attach", "--host", "far"], env=env)
    assert refused.returncode == 1
    assert refused.stderr == "ssh: connect to host far port 22: No route to host\n"


if __name__ == "__main__":
    sys.exit(pytest.main([str(pathlib.Path(__file__))]))
