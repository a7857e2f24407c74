# SPDX-License-Identifier: Apache-2.0
"""ddprun.launch(): a Python function as the workers of a run, from a program, a notebook, and on two nodes."""

import concurrent.futures
import contextlib
import io
import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import threading

import launch_functions as functions
import pytest
from conftest import BIN, DDPRUN, PYTHON, SESSION, TOKEN, clean_environment, finish_all, processes_of_this_session, run, start, wait_for

sys.path.insert(0, PYTHON)
from ddprun import LaunchError, launch  # noqa: E402


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch):
    """Neither a process nor a folder."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setenv("TEST_SESSION", SESSION)
        monkeypatch.setenv("DDPRUN_TOKEN", TOKEN)
        monkeypatch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")
        yield pathlib.Path(folder)
        left = processes_of_this_session()
        for pid, _ in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        assert (left, os.listdir(folder)) == ([], [])


def program_environment(folder):
    environment = clean_environment(PYTHONPATH=os.pathsep.join([PYTHON, os.path.dirname(__file__)]), TMPDIR=str(folder))
    environment["PATH"] = f"{BIN}{os.pathsep}{environment['PATH']}"
    return environment


# What the function may be


def test_results_of_an_all_reduce_by_rank():
    results = launch(functions.sum_of_ranks, ("gloo",), nproc_per_node=2)
    assert {rank: total.tolist() for rank, total in results.items()} == {0: [3.0, 3.0], 1: [3.0, 3.0]}


SCRIPT = """
import os, sys, threading
import ddprun

lock = threading.Lock()  # which no pickle can have
print("imported as", __name__)

class Pair:
    def __init__(self, a, b):
        self.both = a, b

def main(pair):
    print("runs as", __name__, sys.argv[1:], flush=True)
    if pair.both == (0, "inner"):
        return None
    inner = ddprun.launch(main, (Pair(0, "inner"),)) if os.environ["RANK"] == "0" else {0: None}
    assert inner == {0: None}
    with lock:
        return Pair(int(os.environ["RANK"]), pair.both)

if __name__ == "__main__":
    results = ddprun.launch(main, (Pair(1, "two"),), nproc_per_node=2)
    assert all(type(one) is Pair for one in results.values())
    print({rank: one.both for rank, one in results.items()}, "torch" in sys.modules)
"""


SEEN = "imported as __mp_main__", "runs as __mp_main__ ['--lr', '0.1']"


@pytest.mark.parametrize("as_module", [False, True])
def test_a_function_of_a_script(tmp_path, nothing_is_left, as_module):
    (tmp_path / "job.py").write_text(SCRIPT)
    words = ["-m", "job"] if as_module else ["job.py"]
    done = run([sys.executable, *words, "--lr", "0.1"], env=program_environment(nothing_is_left), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "imported as __main__" and lines[-1] == "{0: (0, (1, 'two')), 1: (1, (1, 'two'))} False"
    wanted = [f"{rank} {text}" for rank in ("[0]", "[0] [0]", "[1]") for text in SEEN]
    assert sorted(lines[1:-1]) == sorted(wanted)


def test_a_script_without_the_guard_is_told_of_it(tmp_path, nothing_is_left):
    (tmp_path / "job.py").write_text("import ddprun\ndef main():\n    pass\nddprun.launch(main)\n")
    done = run([sys.executable, "job.py"], env=program_environment(nothing_is_left), cwd=tmp_path)
    assert done.returncode == 1
    assert f"RuntimeError: ddprun.launch() was called by a worker that imports {tmp_path}/job.py; put the call under " in done.stderr
    text = 'if __name__ == "__main__":\n    import ddprun\n    def main():\n        pass\n    ddprun.launch(main)\n'
    (tmp_path / "job.py").write_text(text)
    done = run([sys.executable, "job.py"], env=program_environment(nothing_is_left), cwd=tmp_path)
    assert f"must be at the top level of {tmp_path}/job.py, and not under" in done.stderr.splitlines()[-1]


def test_a_function_of_no_module(monkeypatch):
    number = 40
    pytest.importorskip("cloudpickle")
    assert launch(lambda more: number + more, (2,)) == {0: 42}
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(pickle.PicklingError) as raised:
        launch(lambda more: number + more, (2,))
    assert "cannot send the call of test_a_function_of_no_module.<locals>.<lambda> to the workers" in str(raised.value)
    assert str(raised.value).endswith("or install cloudpickle: pip install cloudpickle")


NO_FILE = """
import os, sys, ddprun
class Result:
    pass
def main():
    one = Result()
    one.rank = os.environ["RANK"]
    return one
results = ddprun.launch(main, nproc_per_node=2)
print([(type(one) is Result, one.rank) for one in results.values()])
sys.modules["cloudpickle"] = None
ddprun.launch(main)
"""


def test_a_function_of_a_program_without_a_file(nothing_is_left):
    pytest.importorskip("cloudpickle")
    done = run([sys.executable, "-c", NO_FILE], env=program_environment(nothing_is_left))
    assert done.stdout == "[(True, '0'), (True, '1')]\n", done.stderr
    sentence = "cannot send the call of main to the workers: it is of a notebook or an interactive session"
    assert sentence in done.stderr.splitlines()[-1]


def test_arguments_that_belong_to_one_process(monkeypatch):
    for cloudpickle in (True, False):
        if not cloudpickle:
            monkeypatch.setitem(sys.modules, "cloudpickle", None)
        with pytest.raises(pickle.PicklingError, match="cannot send the call of add to the workers: cannot pickle '_thread.lock' object; "):
            launch(functions.add, (1, threading.Lock()))


# What it gives, and where its output goes


def test_arguments_environment_and_results(tmp_path):
    assert launch(functions.add, (1, 2), nproc_per_node=3) == {0: 3, 1: 4, 2: 5}
    argv, folder, has_torch = launch(functions.what_is_seen, program=DDPRUN)[0]
    assert (argv, folder, has_torch) == (sys.argv[1:], os.getcwd(), False)
    assert launch(functions.exit_in_rank_1, (0,), nproc_per_node=2) == {0: "returned"}
    assert launch(functions.fail_in_the_first_round, (str(tmp_path / "pid"),), nproc_per_node=2, max_restarts=1) == {0: 1, 1: 1}


def test_output_goes_to_where_the_caller_prints():
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        launch(functions.print_odd_bytes, flags=["--log-line-prefix-template", ">"])
    assert (out.getvalue(), err.getvalue()) == (">caf\ufffd été\n", ">to stderr\n")
    with open("console", "w", encoding="latin-1") as latin, contextlib.redirect_stdout(latin):
        launch(functions.print_odd_bytes)
    assert pathlib.Path("console").read_bytes() == b"[0] caf? \xe9t\xe9\n"
    out.close()
    with contextlib.redirect_stdout(out):  # a console that is closed ends nothing
        launch(functions.print_odd_bytes)


def test_on_a_terminal_ddprun_writes_itself(nothing_is_left):
    """So that the workers are told of the terminal, as when ddprun is typed there."""
    keeper, terminal = os.openpty()
    program = "import ddprun, os\nprint(ddprun.launch(os.getenv, ('DDPRUN_CONSOLE_TERMINAL',)))"
    environment = program_environment(nothing_is_left)
    done = subprocess.run([sys.executable, "-c", program], env=environment, stdout=terminal, stderr=terminal, timeout=60)
    os.close(terminal)
    assert (done.returncode, os.read(keeper, 4096)) == (0, b"{0: '1'}\r\n")
    os.close(keeper)


def test_two_threads_launch():
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        runs = [threads.submit(launch, functions.add, (number, 0), nproc_per_node=2) for number in (10, 20)]
        assert [one.result() for one in runs] == [{0: 10, 1: 11}, {0: 20, 1: 21}]


# Failures


def test_what_a_rank_raised():
    with pytest.raises(LaunchError) as raised:
        launch(functions.raise_in_rank_1, nproc_per_node=2)
    error = raised.value
    assert re.fullmatch(r"rank 1 \(.*\) exited with code 1 after .* s: ValueError: the moon is in the wrong phase", str(error))
    assert (error.exit_code, error.rank, error.verdict["cause"]["kind"]) == (1, 1, "worker_exited")
    assert "in raise_in_rank_1" in error.traceback and "as it was before" in error.traceback
    assert error.traceback in str(error.__cause__)
    copy = pickle.loads(pickle.dumps(error))
    assert f"{LaunchError.__module__}.{LaunchError.__name__}" == "ddprun.LaunchError"  # ddprun.launch is the function
    assert (str(copy), copy.rank, copy.exit_code, copy.traceback) == (str(error), 1, 1, error.traceback)


def test_a_rank_that_exits():
    with pytest.raises(LaunchError, match=r"^rank 1 .* exited with code 3 after [\d.]+ s$") as raised:
        launch(functions.exit_in_rank_1, (3,), nproc_per_node=2)
    assert (raised.value.exit_code, raised.value.rank, raised.value.traceback) == (3, 1, "")


def test_a_result_that_cannot_be_sent():
    with pytest.raises(LaunchError, match="the result of rank 0, a lock, cannot be sent to the caller: .*; return plain data"):
        launch(functions.unsendable)
    with pytest.raises(LaunchError, match="cannot write the result of rank 0 to .*: File too large; name a folder with more room by TMPDIR"):
        launch(functions.too_large)


@pytest.mark.parametrize(
    "arguments, keywords, error, sentence",
    [
        (("train.py",), {}, TypeError, r"calls a function, and 'train.py' is none; run a script with `ddprun SCRIPT`"),
        ((functions.add, 5), {}, TypeError, r"arguments as a tuple, and not a value of type int; give \(VALUE,\)"),
        ((functions.rank,), {"max_restrats": 3}, LaunchError, r"^unknown flag --max-restrats \(did you mean --max-restarts\?\)"),
        ((functions.rank,), {"flags": "--a b"}, TypeError, r"takes flags as a list, and not one text; give \['--a', 'b'\]"),
        ((functions.rank,), {"nproc_per_node": 0}, LaunchError, r"--nproc-per-node"),
        ((functions.rank,), {"program": "/not/there"}, FileNotFoundError, r"'/not/there' is no program .*; name ddprun"),
    ],
)
def test_what_cannot_run_is_one_sentence(arguments, keywords, error, sentence):
    with pytest.raises(error, match=sentence) as raised:
        launch(*arguments, **keywords)
    assert "\n" not in str(raised.value)
    if error is LaunchError:
        assert (raised.value.exit_code, raised.value.verdict, raised.value.rank) == (2, None, None)


def test_without_the_program(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="neither beside this Python nor in PATH; install ddprun's wheel or package, or name it"):
        launch(functions.rank)


def test_a_worker_on_a_host_of_another_node(tmp_path):
    done = run([DDPRUN, "--standalone", os.path.join(PYTHON, "ddprun", "launched.py"), tmp_path / "of-another-host"])
    assert done.returncode == 1
    assert "/call is not on this host: ddprun.launch() starts the ranks of one node alone; call it on each node" in done.stderr


# Ends


CALLER = "import sys, ddprun, launch_functions\nddprun.launch(getattr(launch_functions, sys.argv[1]), (sys.argv[2],), nproc_per_node=2)\n"


@contextlib.contextmanager
def caller_of(function, tmp_path, folder):
    """A program that has called the function, which waits in both ranks."""
    with start([sys.executable, "-c", CALLER, function, tmp_path / "rank"], env=program_environment(folder)) as process:
        try:
            wait_for("both ranks", lambda: all((tmp_path / f"rank.{rank}").exists() for rank in (0, 1)))
            yield process
        finally:
            process.kill()


def test_ctrl_c_ends_the_run(tmp_path, nothing_is_left):
    with caller_of("wait", tmp_path, nothing_is_left) as process:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert processes_of_this_session() == []
        assert process.returncode == -signal.SIGINT and err.splitlines()[-1] == "KeyboardInterrupt"


def test_ctrl_c_again_kills(tmp_path, nothing_is_left):
    with caller_of("wait_deaf", tmp_path, nothing_is_left) as process:
        process.send_signal(signal.SIGINT)
        wait_for("the first signal", lambda: (tmp_path / "rank.told").exists())
        for _ in range(20):  # ddprun takes those of half a second for one
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.7)
                break
            process.send_signal(signal.SIGINT)
        assert process.poll() is not None
        assert processes_of_this_session() == []


@pytest.mark.parametrize("function, signs", [(functions.wait, ["rank.0"]), (functions.wait_deaf, ["rank.0", "rank.told"])])
def test_a_signal_handler_that_raises_ends_the_run(tmp_path, function, signs):
    """Once, and again while the workers do not end."""
    def expire(*_):
        raise TimeoutError("as long as I wait")

    def send():
        for sign in signs:
            wait_for(sign, (tmp_path / sign).exists)
            os.kill(os.getpid(), signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, expire)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        with pytest.raises(TimeoutError, match="as long as I wait"):
            launch(function, (str(tmp_path / "rank"),))
        assert len(signs) == 2 or processes_of_this_session() == []
        wait_for("the end of all processes", lambda: processes_of_this_session() == [])
    finally:
        signal.signal(signal.SIGALRM, before)
        sender.join()


def test_a_folder_that_is_written_to_until_it_is_removed_is_removed(tmp_path, nothing_is_left):
    def write():
        (folder,) = wait_for("the folder", lambda: list(nothing_is_left.glob("ddprun-launch-*")))
        number = 0
        with contextlib.suppress(FileNotFoundError):
            while not is_over.is_set():
                (folder / f"{number}").touch()
                number += 1

    is_over = threading.Event()
    writer = threading.Thread(target=write)
    writer.start()
    assert launch(functions.add, (1, 2)) == {0: 3}
    is_over.set()
    writer.join()


def test_a_caller_that_is_killed_leaves_nothing(tmp_path, nothing_is_left):
    with caller_of("wait", tmp_path, nothing_is_left) as process:
        process.kill()
        process.wait()
        wait_for("the end of all processes", lambda: processes_of_this_session() == [])
    (left,) = nothing_is_left.iterdir()
    assert left.name.startswith("ddprun-launch-") and left.stat().st_mode & 0o777 == 0o700
    launch(functions.rank)
    assert left.exists()  # it may be one that was made a moment ago
    os.utime(left, (0, 0))
    launch(functions.rank)
    assert not left.exists()


def test_the_folder_of_a_caller_that_lives_stays(tmp_path, nothing_is_left):
    with caller_of("wait", tmp_path, nothing_is_left) as process:
        (folder,) = nothing_is_left.iterdir()
        os.utime(folder, (0, 0))
        launch(functions.rank)
        assert folder.exists()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


# Several nodes, and a notebook


NODE = """
import sys, ddprun, launch_functions
results = ddprun.launch(launch_functions.add, (1, 0), nnodes=2, nproc_per_node=2, rdzv_endpoint=sys.argv[1], rdzv_id="twonodes")
print(results)
try:
    ddprun.launch(launch_functions.exit_in_rank_1, (3,), nnodes=2, rdzv_endpoint=sys.argv[1], rdzv_id="fails")
except ddprun.LaunchError as error:
    print(error.rank, error.exit_code)
"""


def test_each_of_two_nodes_has_the_results_of_its_ranks(port, nothing_is_left):
    node = [sys.executable, "-c", NODE, f"127.0.0.1:{port}"]
    ended = finish_all([start(node, env=program_environment(nothing_is_left)) for _ in range(2)])
    assert [code for code, _, _ in ended] == [0, 0], ended
    assert sorted(out for _, out, _ in ended) == ["{0: 1, 1: 2}\n1 3\n", "{2: 3, 3: 4}\n1 3\n"]


class Notebook:
    def __init__(self, client):
        self.client = client

    def run(self, cell, while_it_runs=None):
        """({stream: text, "result": text}, the error's name)."""
        request, seen, failed = self.client.execute(cell), {}, None
        while True:
            message = self.client.get_iopub_msg(timeout=60)
            kind, content = message["msg_type"], message["content"]
            if message["parent_header"].get("msg_id") != request:
                continue
            if kind == "stream":
                seen[content["name"]] = seen.get(content["name"], "") + content["text"]
                if while_it_runs:
                    while_it_runs(seen)
            elif kind == "execute_result":
                seen["result"] = content["data"]["text/plain"]
            elif kind == "error":
                failed = content
            elif kind == "status" and content["execution_state"] == "idle":
                return seen, failed


@pytest.fixture
def kernel(tmp_path, nothing_is_left):
    manager = pytest.importorskip("jupyter_client.manager")
    folders = {name: str(tmp_path) for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR")}
    kernel = manager.KernelManager(kernel_name="python3", connection_file=str(tmp_path / "connection.json"))
    kernel.start_kernel(env={**program_environment(nothing_is_left), **folders}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    client = kernel.blocking_client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=60)
        kernel.notebook = Notebook(client)
        yield kernel
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)


CELL = """
import os, sys, time
import ddprun

offset = 40

def train(more):
    print("trains", flush=True)
    print("warns", file=sys.stderr, flush=True)
    return int(os.environ["RANK"]) + offset + more

def fail():
    raise ValueError("of a cell")

def wait():
    print("waits", flush=True)
    time.sleep(600)

ddprun.launch(train, (2,), nproc_per_node=2)
"""


def test_a_notebook(kernel):
    seen, failed = kernel.notebook.run(CELL)
    assert failed is None, failed
    assert seen["result"] == "{0: 42, 1: 43}"
    assert sorted(seen["stdout"].splitlines()) == ["[0] trains", "[1] trains"]
    assert sorted(seen["stderr"].splitlines()) == ["[0] warns", "[1] warns"]
    _, failed = kernel.notebook.run("ddprun.launch(fail)")
    assert failed["ename"] == "LaunchError" and failed["evalue"].endswith(": ValueError: of a cell")
    interrupts = []

    def interrupt(seen):
        if "waits" in seen["stdout"] and not interrupts:
            interrupts.append(kernel.interrupt_kernel())

    _, failed = kernel.notebook.run("ddprun.launch(wait)", interrupt)
    assert failed["ename"] == "KeyboardInterrupt"
    assert [command for _, command in processes_of_this_session() if "ddprun-launch-" in command] == []
    assert kernel.notebook.run("ddprun.launch(train, (3,))")[0]["result"] == "{0: 43}"
