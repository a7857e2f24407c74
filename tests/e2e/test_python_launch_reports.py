# SPDX-License-Identifier: Apache-2.0
"""ddprun.launch() where users reported that mp.spawn, elastic_launch or notebook_launcher fails them, with Python's own flags, and
with each version of PyTorch."""

import re
import signal
import sys

import launch_functions as functions
import pytest
from conftest import PYTHON, finish_all, free_port, run, start
from test_python_launch import CELL, kernel, nothing_is_left, program_environment  # noqa: F401  two of them are fixtures
from torch_versions import each_version

from ddprun import LaunchError, launch

# Python's own flags: multiprocessing hands them on to what it spawns


FLAGS = f"""
import sys
sys.path.insert(0, {PYTHON!r})  # -I leaves out what PYTHONPATH has
import ddprun

def flags():
    named = {{name: getattr(sys.flags, name) for name in dir(sys.flags) if name[0] != "_" and name[:2] != "n_"}}
    for name in ("isolated", "ignore_environment", "count", "index"):  # the launcher's own variables must be read
        named.pop(name, None)
    return named, sys.warnoptions, __debug__

if __name__ == "__main__":
    here, there = flags(), ddprun.launch(flags)[0]
    print("same" if here == there else f"{{here}} {{there}}")
"""


@pytest.mark.parametrize(
    "flags",
    ["-O -B -s -X dev -W error::UserWarning -W ignore::ImportWarning", "-OO -X utf8=0 -X int_max_str_digits=5000 -v", "-I", "-E -d"],
)
def test_the_workers_python_has_the_flags_of_the_callers(tmp_path, nothing_is_left, flags):  # noqa: F811
    (tmp_path / "job.py").write_text(FLAGS)
    environment = {**program_environment(nothing_is_left), "PYTHONOPTIMIZE": "1", "PYTHONWARNINGS": "ignore::FutureWarning"}
    done = run([sys.executable, *flags.split(), tmp_path / "job.py"], env=environment)
    assert (done.returncode, done.stdout) == (0, "same\n"), done.stderr


# What users reported


def test_a_worker_that_a_signal_ends():
    """mp.spawn: "process 0 terminated with signal SIGKILL", and which rank that was, and when, is for the user to find out."""
    for number in (signal.SIGKILL, signal.SIGSEGV):
        with pytest.raises(LaunchError, match=rf"^rank 1 \(.*\) .*{number.name}.* after [\d.]+ s") as raised:
            launch(functions.kill_rank_1, (number,), nproc_per_node=2)
        assert (raised.value.rank, raised.value.exit_code) == (1, 128 + number)


def test_a_worker_that_does_not_end(tmp_path):
    """pytorch#41694: mp.spawn waits for ever for a process that does not heed SIGTERM, and the exception is never seen."""
    with pytest.raises(LaunchError, match="rank 1 .*: ValueError: while rank 0 waits"):
        launch(functions.raise_while_rank_0_is_deaf, (str(tmp_path / "rank"),), nproc_per_node=2, term_timeout=1)


def test_a_worker_that_interrupts_itself():
    """pytorch#194439: mp.spawn takes a worker that ends by KeyboardInterrupt for one that has succeeded."""
    with pytest.raises(LaunchError, match=r"^rank 1 .* was killed by SIGINT after ") as raised:
        launch(functions.interrupt_rank_1, nproc_per_node=2)
    assert (raised.value.rank, raised.value.exit_code) == (1, 128 + signal.SIGINT)
    assert raised.value.verdict["cause"]["last_lines"][-1] == "KeyboardInterrupt"


def test_a_result_that_no_pipe_takes_at_once():
    """With a multiprocessing.Queue a result of more than 64 KiB hangs, where the caller joins the worker first."""
    results = launch(functions.large, (16 << 20,), nproc_per_node=2)
    assert {rank: len(result) for rank, result in results.items()} == {0: 16 << 20, 1: 16 << 20}


def test_a_cell_of_an_editor_that_names_a_file(kernel, tmp_path):  # noqa: F811
    """vscode-jupyter#12485: the cells run in a module that says it is a file, and what they define is not in it."""
    (tmp_path / "analysis.py").write_text("raise SystemExit('the file was run')\n")
    kernel.notebook.run(f"__file__ = {str(tmp_path / 'analysis.py')!r}")
    seen, failed = kernel.notebook.run(CELL)
    assert failed is None, failed
    assert seen["result"] == "{0: 42, 1: 43}"


def test_what_was_typed_after_a_file_ran(tmp_path, nothing_is_left):  # noqa: F811
    """cpython#132898: `python -i FILE`."""
    (tmp_path / "job.py").write_text("import ddprun, os\n")
    typed = "def rank():\n    return int(os.environ['RANK'])\n\nprint('typed', ddprun.launch(rank, nproc_per_node=2))\n"
    done = run(["sh", "-c", 'printf %s "$0" | "$@"', typed, sys.executable, "-i", "job.py"], env=program_environment(nothing_is_left), cwd=tmp_path)
    assert "typed {0: 0, 1: 1}" in done.stdout, done.stderr


# Versions of PyTorch


NODE = """
import sys, torch, ddprun, launch_functions as functions
results = ddprun.launch(functions.sum_of_ranks, ("gloo",), nnodes=2, rdzv_endpoint=sys.argv[1], rdzv_id="sum")
print(torch.__version__.partition("+")[0], {rank: total.tolist() for rank, total in results.items()})
try:
    ddprun.launch(functions.raise_in_rank_1, nnodes=2, rdzv_endpoint=sys.argv[1], rdzv_id="fails")
except ddprun.LaunchError as error:
    print(error.rank, error.exit_code, str(error).rpartition(": ")[2])
"""


@each_version()
def test_two_nodes_with_each_version(python, request, nothing_is_left):  # noqa: F811
    version = re.search(r"\[(.*)\]", request.node.name)[1]
    node = [python, "-c", NODE, f"127.0.0.1:{free_port()}"]
    ended = finish_all([start(node, env=program_environment(nothing_is_left)) for _ in range(2)])
    assert [code for code, _, _ in ended] == [0, 0], ended
    failed = "1 1 the moon is in the wrong phase\n"
    assert sorted(out for _, out, _ in ended) == [f"{version} {{{rank}: [3.0, 3.0]}}\n{failed}" for rank in (0, 1)]
