# SPDX-License-Identifier: Apache-2.0
"""Restarts of workers that are forked (--preload), and what goes wrong with them, with the server that forks them, and
with its modules."""

import os
import pathlib
import signal
import sys

import pytest
from conftest import DDPRUN, agent_of, finish_all, free_port, processes_of_this_session, run, start, wait_for
from preload_runs import FORKED, ddprun, environment, folder, imports, server_of, write  # noqa: F401

FALLEN_BACK = "workers start without it"

# ---- Restarts and deaths


BEGINS = (
    "import os, signal, sys, counted\n"
    "print('round', os.environ['TORCHELASTIC_RESTART_COUNT'], 'rank', os.environ['RANK'])\n"
)


def test_a_restart_forks_too(folder):
    program = write(
        folder,
        BEGINS + "if os.environ['TORCHELASTIC_RESTART_COUNT'] < '3' and os.environ['RANK'] == '1':\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n",
    )
    done = ddprun(folder, *FORKED, "--max-restarts", 3, program, workers=2)
    assert done.returncode == 0, done.stderr
    assert "round 3 rank 1" in done.stdout
    assert len(imports(folder)) == 1
    assert not processes_of_this_session()


def test_parked_workers_are_forked(folder):
    program = write(
        folder,
        "import os, signal, counted\n"
        "from ddprun import Rounds\n"
        "parked = 'DDPRUN_PARKED' in os.environ\n"
        "rounds = Rounds()\n"
        "rounds.keep()\n"
        "if parked:\n"
        "    open('ready', 'w').close()\n"
        "    os.environ.update(rounds.wait_round())\n"
        "    print('parked before rank', os.environ['RANK'])\n"
        "elif os.environ['RANK'] == '0':\n"
        "    while not os.path.exists('ready'): pass\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "else:\n"
        "    assert rounds.broken(timeout=60)\n"
        "    rounds.left()\n"
        "    os.environ.update(rounds.wait_round())\n"
        "    print('kept as rank', os.environ['RANK'])\n",
    )
    done = ddprun(folder, "--max-restarts", 1, "--spares", 1, *FORKED, program, workers=2)
    assert done.returncode == 0, done.stderr
    assert "parked before rank 0" in done.stdout and "kept as rank 1" in done.stdout
    assert len(imports(folder)) == 1


SAYS_WHETHER = "import os, sys\nprint('preloaded', {module!r} in sys.modules)\n"
FAILS_BEFORE = "if int(os.environ['TORCHELASTIC_RESTART_COUNT']) < {round}: sys.exit(1)\n"


def test_the_server_is_killed_while_it_waits(folder):
    """Another one takes its place at once."""
    program = write(
        folder,
        SAYS_WHETHER.format(module="counted") + "import counted\n"
        "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
        "    open('begun', 'w').close()\n"
        "    while not os.path.exists('gone'): pass\n"
        "    sys.exit(1)\n",
    )
    command = [DDPRUN, "--standalone", "--max-restarts", 1, *FORKED, program]
    process = start(command, env=environment(folder), cwd=folder)
    wait_for("the worker", (folder / "begun").exists)
    server = server_of(process.pid)
    os.kill(server, signal.SIGKILL)
    wait_for("its end", lambda: not pathlib.Path(f"/proc/{server}").exists())
    wait_for("another one", lambda: len(imports(folder)) == 2)
    (folder / "gone").touch()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out.splitlines() == ["[0] preloaded True", "[0] preloaded True"]
    assert f"of --preload counted was killed by signal 9 (SIGKILL); {FALLEN_BACK} until another one is ready" in err
    assert err.count("fork server") == 1
    assert len(imports(folder)) == 2  # no worker has
    assert not processes_of_this_session()


def test_a_server_that_was_killed_while_it_imported_is_started_again_in_the_next_round(folder):
    write(
        folder,
        "import os, pathlib\n"
        "if not os.path.exists('killed'):\n"
        "    open('killed', 'w').close()\n"
        "    os.kill(os.getpid(), 9)\n"
        "print('imported')\n",
        "killed_once.py",
    )
    program = write(folder, SAYS_WHETHER.format(module="killed_once") + FAILS_BEFORE.format(round=1))
    done = ddprun(folder, "--preload", "killed_once", "--max-restarts", 1, program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[0] preloaded False", "[0] preloaded True"]
    assert done.stderr.count("fork server") == 1
    assert done.stderr.count("[preload] imported") == 1


HOOKS = """
import os, signal
forks = 0
def before():
    global forks
    forks += 1
    act("server")
def act(where):
    if (where, forks) == {at}:
        {does}
os.register_at_fork(before=before, after_in_child=lambda: act("child"))
"""
# The first fork is the server's own test; the second and third make a worker.
IN_FORKS = {
    "the server dies": (("server", 2), "os.kill(os.getpid(), 9)", "was killed by signal 9 (SIGKILL)"),
    "the worker's parent dies": (("child", 2), "os.kill(os.getpid(), 9)", "did not start a worker: the process ended"),
    "the worker dies": (("child", 3), "os.kill(os.getpid(), 9)", "did not start a worker: the process ended"),
    "the server hangs": (("server", 2), "signal.pause()", "did not start a worker: it has not answered for 10 s"),
    "the worker hangs": (("child", 3), "signal.pause()", "did not start a worker: it has not answered for 10 s"),
}


@pytest.mark.parametrize("what", IN_FORKS)
def test_a_fork_that_fails_leaves_one_worker(folder, what):
    at, does, sentence = IN_FORKS[what]
    write(folder, HOOKS.format(at=at, does=does), "hooked.py")
    program = write(folder, "import os\nopen('runs', 'a').write(f'{os.getpid()}\\n')\n")
    done = ddprun(folder, "--preload", "hooked", program)
    assert done.returncode == 0, done.stderr
    assert sentence in done.stderr and FALLEN_BACK in done.stderr
    assert len((folder / "runs").read_text().split()) == 1
    assert not processes_of_this_session()


def test_a_server_that_always_dies_is_given_up(folder):
    hooks = HOOKS.format(at=("server", 2), does="os.kill(os.getpid(), 9)")
    write(folder, hooks + "open('servers', 'a').write(f'{os.getpid()}\\n')\n", "hooked.py")
    program = write(folder, SAYS_WHETHER.format(module="hooked") + FAILS_BEFORE.format(round=4))
    done = ddprun(folder, "--preload", "hooked", "--max-restarts", 4, program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[0] preloaded False"] * 5
    notes = [line for line in done.stderr.splitlines() if "fork server" in line]
    said = f"ddprun: the fork server of --preload hooked was killed by signal 9 (SIGKILL); {FALLEN_BACK}"
    ends = [" until another one is ready"] * 2 + [" from now on: it has failed 3 times in a row"]
    assert notes == [said + end for end in ends]
    assert len((folder / "servers").read_text().split()) == 3
    assert not processes_of_this_session()


def test_no_process_is_left_for_a_worker(folder):
    write(
        folder,
        "import os\n"
        "forks, fork = iter([os.fork, os.fork]), os.fork\n"
        "def refused():\n    raise BlockingIOError(11, 'Resource temporarily unavailable')\n"
        "os.fork = lambda: next(forks, refused)()\n",
        "hooked.py",
    )
    done = ddprun(folder, "--preload", "hooked", write(folder, "print('runs')\n"))
    assert (done.returncode, done.stdout) == (0, "[0] runs\n")
    assert "did not start a worker: [Errno 11] Resource temporarily unavailable" in done.stderr


def test_nothing_outlives_the_agent(folder):
    program = write(folder, "import counted, time\nprint('runs')\ntime.sleep(600)\n")
    process = start([DDPRUN, "--standalone", "--nproc-per-node", 2, *FORKED, program], env=environment(folder))
    server = server_of(process.pid)
    agent = agent_of(process.pid)
    wait_for("the workers", lambda: len(processes_of_this_session()) == 6)
    os.kill(agent, signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 137, err
    assert not pathlib.Path(f"/proc/{server}").exists()
    assert not processes_of_this_session()


def test_a_signal_does_not_wait_for_the_imports(folder):
    write(folder, "import pathlib, time\npathlib.Path('begun').touch()\ntime.sleep(600)\n", "slow.py")
    program = write(folder, "print('never')\n")
    process = start([DDPRUN, "--standalone", "--preload", "slow", program], env=environment(folder), cwd=folder)
    wait_for("the import", (folder / "begun").exists)
    process.terminate()
    out, err = process.communicate(timeout=20)
    assert process.returncode == 143, err
    assert "never" not in out
    assert not processes_of_this_session()


def test_the_server_ends_before_its_folder_is_removed(folder):
    """Or it would not find the module that keeps it from running the program, as a worker without a rank."""
    python = write(
        folder,
        "#!/bin/bash\n"
        'if [[ "$DDPRUN_FORK_SERVER" == serve* ]]; then\n'
        f"    touch {folder}/begun\n"
        '    while [[ -e "${PYTHONPATH%%:*}" ]]; do :; done\n'
        f"    touch {folder}/outlived\n"
        "fi\n"
        f'exec -a "$0" {sys.executable} "$@"\n',
        "python",
    )
    python.chmod(0o755)
    program = write(folder, "print('never')\n")
    process = start([DDPRUN, "--standalone", *FORKED, program], env=environment(folder, PYTHON_EXEC=str(python)))
    wait_for("the server", (folder / "begun").exists)
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == 143
    assert not processes_of_this_session()
    assert not (folder / "outlived").exists()


def test_signals_reach_forked_workers(folder):
    program = write(
        folder,
        "import signal, sys\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('usr1', flush=True))\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "print('ready')\n"
        "while True: signal.pause()\n",
    )
    process = start([DDPRUN, "--standalone", "--forward-signals", "SIGUSR1", *FORKED, program], env=environment(folder))
    assert "ready" in process.stdout.readline()
    process.send_signal(signal.SIGUSR1)
    assert "usr1" in process.stdout.readline()
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 143


# ---- Two nodes


def test_ranks_of_two_nodes_are_forked(folder):
    """And once more after the death of one: each node has imported torch once."""
    program = write(
        folder,
        SAYS_WHETHER.format(module="torch") + "import signal, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "import torch\n"
        "x = torch.ones(1) * (dist.get_rank() + 1)\n"
        "dist.all_reduce(x)\n"
        "restart = os.environ['TORCHELASTIC_RESTART_COUNT']\n"
        "print('restart', restart, 'rank', dist.get_rank(), 'sum', x.item())\n"
        "if restart == '0':\n"
        "    if dist.get_rank() == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    while True: signal.pause()\n"
        "dist.destroy_process_group()\n",
    )
    command = [DDPRUN, "--nnodes", 2, "--master-addr", "127.0.0.1", "--master-port", free_port(), "--max-restarts", 1]
    command += ["--preload", "torch,counted", program]
    nodes = [start([*command[:3], "--node-rank", rank, *command[3:]], env=environment(folder)) for rank in (0, 1)]
    for rank, (code, out, err) in enumerate(finish_all(nodes)):
        assert code == 0, err
        assert "fork server" not in err
        assert out.count("preloaded True") == 2
        assert all(f"restart {restart} rank {rank} sum 3.0" in out for restart in (0, 1))
    assert len(imports(folder)) == 2
    assert not processes_of_this_session()


# ---- Modules that cannot be preloaded

BAD_MODULES = {
    "raises": ("raise ValueError('when imported')", "ended: ValueError: when imported"),
    "imports nothing": ("import nowhere_at_all", "ended: ModuleNotFoundError: No module named 'nowhere_at_all'"),
    "exits": ("import sys; sys.exit(4)", "ended: SystemExit: 4"),
    "is no Python": ("def f(:", "ended: SyntaxError: invalid syntax"),
    "starts a thread": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
        "ended: its modules have started threads (1), which a forked process would not have",
    ),
}


@pytest.mark.parametrize("bad", BAD_MODULES)
def test_without_its_modules_the_run_goes_on(folder, bad):
    text, sentence = BAD_MODULES[bad]
    write(folder, text + "\n", "bad.py")
    program = write(folder, "import os\nopen('runs', 'a').write(f'{os.getpid()}\\n')\n")
    done = ddprun(folder, "--preload", "json,bad", program, workers=2)
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"ddprun: the fork server of --preload json,bad {sentence}; {FALLEN_BACK}\n"
    assert len((folder / "runs").read_text().split()) == 2


def test_threads_that_end_before_a_fork_are_no_hindrance(folder):
    """As those of OpenBLAS, which numpy brings."""
    write(
        folder,
        "import os, threading\n"
        "ended = threading.Event()\n"
        "thread = threading.Thread(target=ended.wait)\n"
        "thread.start()\n"
        "os.register_at_fork(before=lambda: (ended.set(), thread.join()))\n",
        "joins.py",
    )
    done = ddprun(folder, "--preload", "joins", write(folder, "import sys; print('joins' in sys.modules)\n"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "[0] True\n", "")


def test_what_modules_print_is_shown_once(folder):
    write(folder, "import sys\nprint('to stdout')\nprint('to stderr', file=sys.stderr)\n", "talks.py")
    done = ddprun(folder, "--preload", "talks", write(folder, "print('works')\n"), workers=2)
    assert done.returncode == 0
    assert done.stderr == "[preload] to stdout\n[preload] to stderr\n"
    assert done.stdout.count("works") == 2


def test_a_python_without_sitecustomize_does_not_get_the_program(folder):
    """It would run it as a worker that has no rank."""
    isolated = write(folder, f'#!/bin/sh\nexec {sys.executable} -I "$@"\n', "isolated")
    isolated.chmod(0o755)
    program = write(folder, f"import os\nopen('{folder}/runs', 'a').write(os.environ['RANK'] + '\\n')\n")
    done = ddprun(folder, *FORKED, program, PYTHON_EXEC=str(isolated))
    assert done.returncode == 0, done.stderr
    assert "imports no sitecustomize from PYTHONPATH" in done.stderr
    assert (folder / "runs").read_text() == "0\n"


def test_a_wrapper_of_python_is_no_hindrance(folder):
    wrapper = write(folder, f'#!/bin/sh\nexec {sys.executable} -W error -X dev "$@"\n', "wrapper")
    wrapper.chmod(0o755)
    program = write(folder, "import sys\nprint(sys.orig_argv[1:], sys.flags.dev_mode, 'counted' in sys.modules)\n")
    done = ddprun(folder, *FORKED, program, PYTHON_EXEC=str(wrapper))
    assert f"['-W', 'error', '-X', 'dev', '-u', '{program}'] True True" in done.stdout, done.stderr


@pytest.mark.parametrize("words", [["true"], ["--no-python", "x.py"], ["--", "python3", "x.py"]])
def test_only_python_programs_are_preloaded(folder, words):
    write(folder, "#!/usr/bin/env python3\n", "x.py").chmod(0o755)
    done = run([DDPRUN, "--standalone", *FORKED, *words], env=environment(folder, PATH=f"{folder}:/usr/bin:/bin"))
    assert done.returncode == 2
    assert "--preload is for Python programs, and " in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_workers_of_different_programs_are_not_preloaded(folder):
    done = ddprun(folder, *FORKED, "-m", "program${local_rank}")
    assert done.returncode == 2
    assert "program${local_rank} is another one for each; leave one of them out" in done.stderr
