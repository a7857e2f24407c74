# SPDX-License-Identifier: Apache-2.0
"""What users of mpirun and srun type: the number of all ranks, ranks under a debugger, the stdin of one rank."""

import hashlib
import os
import pty
import select
import shutil
import subprocess
import sys
import time

import pytest
from conftest import DDPRUN, SHELL_DDPRUN, clean_environment, finish_all, free_port, run, start

SAY_RANK = ["sh", "-c", "echo $RANK of $WORLD_SIZE, $LOCAL_WORLD_SIZE here"]


def lines_of(done):
    """Sorted (rank, line) pairs of the console."""
    assert done.returncode == 0, done.stderr
    return sorted((line[1], line[4:]) for line in done.stdout.splitlines())


def with_stdin(command, text):
    return subprocess.run(
        [str(word) for word in command], input=text, env=clean_environment(), text=True, capture_output=True, timeout=60
    )


def two_hosts(tmp_path):
    """Flags for two hosts, which both are this machine."""
    rsh = tmp_path / "rsh"
    rsh.write_text('#!/bin/sh\nshift\neval "exec $*"\n')
    rsh.chmod(0o755)
    return ["-H", "a:2,b:2", "--rsh", rsh, "--master-addr", "127.0.0.1"]


# ---- -n, -np, -ppn


@pytest.mark.parametrize("flags", [["-n", "3"], ["-np", "3"], ["-n", "3", "-ppn", "3"], ["--npernode", "3"]])
def test_the_number_of_workers_on_one_node(flags):
    assert lines_of(run([DDPRUN, *flags, *SAY_RANK])) == [(str(r), f"{r} of 3, 3 here") for r in range(3)]


def test_two_nodes_share_the_total():
    port = free_port()
    flags = ["-np", "4", "-ppn", "2", "--master-addr", "127.0.0.1", "--master-port", port]
    nodes = [start([DDPRUN, *flags, "--node-rank", rank, *SAY_RANK]) for rank in (0, 1)]
    ends = finish_all(nodes)
    assert [code for code, _, _ in ends] == [0, 0], ends
    said = "".join(out for _, out, _ in ends)
    for rank in range(4):
        assert f"{rank} of 4, 2 here" in said


def test_hosts_are_filled_in_their_order(tmp_path):
    done = run([DDPRUN, *two_hosts(tmp_path), "-n", "3", *SAY_RANK])
    assert done.returncode == 0, done.stderr
    assert sorted(line.split("] ")[1] for line in done.stdout.splitlines()) == [
        "0 of 3, 2 here",
        "1 of 3, 2 here",
        "2 of 3, 1 here",
    ]


def test_contradicting_numbers_are_one_sentence():
    done = run([DDPRUN, "-n", "6", "-ppn", "4", "true"])
    assert done.returncode == 2
    assert done.stderr == (
        "ddprun: -n 6 is no multiple of --nproc-per-node 4, which is the number on each node; change one of them, or "
        "leave the second one out\n"
    )
    done = run([DDPRUN, "-H", "a:2,b:2", "-n", "5", "true"])
    assert done.returncode == 2
    assert done.stderr.startswith("ddprun: -n 5 is more than the 4 slots of 2 hosts; ")


# ---- --wrap


def test_some_ranks_run_under_a_command(tmp_path):
    command = [DDPRUN, "-n", "4", "--wrap", "1:env EXTRA='a  b'", "--wrap", f"2-3:sh -c 'exec \"$@\" > {tmp_path}/out.%r' sh"]
    done = run([*command, "sh", "-c", 'echo "$RANK:$EXTRA"'])
    assert lines_of(done) == [("0", "0:"), ("1", "1:a  b")]
    assert [(tmp_path / f"out.{rank}").read_text() for rank in (2, 3)] == ["2:\n", "3:\n"]


def test_a_wrapped_python_is_not_forked(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import os, sys\nprint('colorsys' in sys.modules, os.environ.get('WRAPPED'), sys.argv[1:])\n")
    done = run([DDPRUN, "-n", "2", "--preload", "colorsys", "--wrap", "1:env WRAPPED=yes", script, "x y"])
    assert lines_of(done) == [("0", "True None ['x y']"), ("1", "False yes ['x y']")]


def test_the_end_of_the_wrapper_is_the_ranks():
    done = run([DDPRUN, "-n", "2", "--wrap", "1:sh -c 'exit 7' sh", "sleep", "60"])
    assert done.returncode == 7
    assert "rank 1" in done.stderr


def test_a_round_later_the_rank_is_wrapped_again():
    script = 'echo "$TORCHELASTIC_RESTART_COUNT:$W"; [ "$TORCHELASTIC_RESTART_COUNT" = 1 ]'
    done = run([DDPRUN, "--max-restarts", "1", "--wrap", "0:env W=yes", "sh", "-c", script])
    assert lines_of(done) == [("0", "0:yes"), ("0", "1:yes")]


def test_what_cannot_be_wrapped_is_said_before_the_start(tmp_path):
    done = run([DDPRUN, "--wrap", "0:no-such-debugger --args", "true"])
    assert done.returncode == 127
    assert done.stderr == "ddprun: --wrap: there is no program 'no-such-debugger' in PATH; install it, or give its path\n"
    (tmp_path / "plain").write_text("")
    assert run([DDPRUN, "--wrap", f"0:{tmp_path}/plain", "true"]).returncode == 126
    done = run([DDPRUN, "-n", "2", "--wrap", "2:time", "true"])
    assert done.returncode == 2
    assert done.stderr == "ddprun: --wrap names rank 2, and this run has ranks 0 to 1; name one of them\n"


def test_two_nodes_say_once_that_a_rank_is_missing():
    flags = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", free_port(), "--stdin", "5"]
    ends = finish_all([start([DDPRUN, *flags, "--node-rank", rank, "true"]) for rank in (0, 1)])
    assert [code for code, _, _ in ends] == [0, 0], ends
    said = "".join(err for _, _, err in ends)
    assert said.count("ddprun: --stdin names rank 5, and this run has ranks 0 to 1; name one of them\n") == 1


def test_wraps_of_a_settings_file(tmp_path):
    settings = tmp_path / "ddprun.yaml"
    settings.write_text("ntasks: 2\nwrap: ['0:env W=zero', '1:env W=one']\nstdin: none\n")
    done = run([DDPRUN, "--config", settings, "sh", "-c", "echo $W"])
    assert lines_of(done) == [("0", "zero"), ("1", "one")]
    text = run([DDPRUN, "--config", settings, "--dry-run", "true"]).stdout
    assert "rank 0: /" in text and "W=one" in text and "of no worker" in text


@pytest.mark.skipif(shutil.which("gdb") is None, reason="needs gdb")
def test_a_debugger_at_one_rank():
    command = [DDPRUN, "-n", "2", "--wrap", "1:gdb -q -nx --args", "--stdin", "1", sys.executable, "-c", "print('word')"]
    done = with_stdin(command, "run\nquit\n")
    assert done.returncode == 0, done.stderr
    assert "[0] word" in done.stdout and "exited normally" in done.stdout


# ---- --stdin


def test_one_rank_has_stdin_and_the_others_find_its_end():
    done = with_stdin([DDPRUN, "-n", "3", "--stdin", "1", "sh", "-c", "cat; echo end"], "a\nb\n")
    assert lines_of(done) == [("0", "end"), ("1", "a"), ("1", "b"), ("1", "end"), ("2", "end")]


def test_no_rank_has_stdin():
    done = with_stdin([DDPRUN, "-n", "2", "--stdin", "none", "sh", "-c", "cat; echo end"], "a\n")
    assert lines_of(done) == [("0", "end"), ("1", "end")]


def test_a_file_is_the_stdin_of_the_rank_itself(tmp_path):
    (tmp_path / "file").write_text("first\nsecond\n")
    script = "import sys; sys.stdin.seek(6); print(sys.stdin.read().strip())"
    with (tmp_path / "file").open() as file:
        done = subprocess.run(
            [DDPRUN, "--stdin", "0", sys.executable, "-c", script],
            stdin=file,
            env=clean_environment(),
            text=True,
            capture_output=True,
            timeout=60,
        )
    assert lines_of(done) == [("0", "second")]


def test_a_restarted_rank_goes_on_reading_where_it_ended():
    script = 'read line; echo "$line"; [ "$TORCHELASTIC_RESTART_COUNT" = 1 ]'
    done = with_stdin([DDPRUN, "--max-restarts", "1", "--stdin", "0", "sh", "-c", script], "first\nsecond\n")
    assert lines_of(done) == [("0", "first"), ("0", "second")]


def test_a_rank_that_does_not_read_holds_up_nothing():
    with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as endless:
        done = subprocess.run(
            [DDPRUN, "-n", "2", "--stdin", "0", "echo", "word"],
            stdin=endless.stdout,
            env=clean_environment(),
            text=True,
            capture_output=True,
            timeout=60,
        )
        endless.kill()
    assert lines_of(done) == [("0", "word"), ("1", "word")]


def test_a_forked_python_has_it_too(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys\nprint('colorsys' in sys.modules, sys.stdin.read().split())\n")
    done = with_stdin([DDPRUN, "-n", "2", "--preload", "colorsys", "--stdin", "1", script], "a b\n")
    assert lines_of(done) == [("0", "True []"), ("1", "True ['a', 'b']")]


def test_a_rank_of_another_host_has_the_stdin_of_the_head(tmp_path):
    text = "".join(f"line {i} \u00e4\n" for i in range(40_000))
    script = 'if [ $RANK = 3 ]; then md5sum; else cat; fi; echo "$RANK end"'
    done = with_stdin([DDPRUN, *two_hosts(tmp_path), "--stdin", "3", "sh", "-c", script], text)
    assert done.returncode == 0, done.stderr
    said = sorted(line.split("] ")[1] for line in done.stdout.splitlines())
    assert said[:4] == ["0 end", "1 end", "2 end", "3 end"]
    assert said[4] == hashlib.md5(text.encode()).hexdigest() + "  -"


def test_a_rank_of_a_host_that_does_not_read_ends_the_run_all_the_same(tmp_path):
    with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as endless:
        done = subprocess.run(
            [DDPRUN, *[str(word) for word in two_hosts(tmp_path)], "--stdin", "2", "echo", "word"],
            stdin=endless.stdout,
            env=clean_environment(),
            text=True,
            capture_output=True,
            timeout=60,
        )
        endless.kill()
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("word") == 4


class Terminal:
    """A program with a person at its terminal."""

    def __init__(self, command):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], [str(word) for word in command], clean_environment(PS1="$ "))
        self.seen = ""

    def read_until(self, words, timeout=60):
        deadline = time.monotonic() + timeout
        while words not in self.seen:
            assert time.monotonic() < deadline, self.seen
            if select.select([self.fd], [], [], 1)[0]:
                try:
                    self.seen += os.read(self.fd, 4096).decode()
                except OSError:
                    break
        assert words in self.seen, self.seen

    def type(self, text):
        os.write(self.fd, text.encode())

    def exit_code(self):
        while True:
            try:
                if not os.read(self.fd, 4096):
                    break
            except OSError:
                break
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


ASK = "import os, sys; name = input('name? '); print('hello', name, os.isatty(0)); print(repr(sys.stdin.read()))"


def test_a_terminal_shows_the_prompt_and_passes_lines_on():
    terminal = Terminal([DDPRUN, "-n", "2", "--stdin", "1", "sh", "-c", f'[ $RANK = 0 ] || exec {sys.executable} -uc "$0"', ASK])
    terminal.read_until("[1] name? ")
    terminal.type("world\n")
    terminal.read_until("hello world False")
    terminal.type("rest\n\x04")
    terminal.read_until("'rest\\n'")
    assert terminal.exit_code() == 0


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs a shell with job control")
def test_in_the_background_the_terminal_is_the_shells():
    terminal = Terminal(["bash", "--norc", "--noprofile", "-i"])
    terminal.read_until("$ ")
    terminal.type(f"{SHELL_DDPRUN} --stdin 0 sh -c 'echo up; read x; echo got $x' &\n")
    terminal.read_until("[0] up")
    terminal.type("echo shell-$((40+2))\n")
    terminal.read_until("shell-42")
    terminal.seen = ""
    terminal.type("fg\n")
    terminal.read_until("echo got $x'")  # the shell says what comes to the foreground, and reads no more
    terminal.type("hello\n")
    terminal.read_until("[0] got hello")
    terminal.seen = terminal.seen.split("got hello")[1]
    terminal.read_until("$ ")  # before that ddprun still reads
    terminal.type("exit\n")
    assert terminal.exit_code() == 0
