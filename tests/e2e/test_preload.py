# SPDX-License-Identifier: Apache-2.0
"""Workers that are forked from a Python that has imported their modules (--preload), beside workers that import them
themselves."""

import json
import re
import subprocess
import zipfile

import pytest
from conftest import DDPRUN
from preload_runs import COLD, FORKED, HERE, ddprun, environment, folder, imports, write  # noqa: F401

PROBE = HERE / "preload_probe.py"

# ---- What a worker finds


def ways(folder):
    """The command of each way to run the probe."""
    source = PROBE.read_text()
    packed = folder / "packed.pyz"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("__main__.py", source)
    (folder / "unpacked").mkdir()
    (folder / "unpacked" / "__main__.py").write_text(source)
    (folder / "link.py").symlink_to(PROBE)
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text("")
    (folder / "package" / "probe.py").write_text(source)
    (folder / "relative.py").write_text(source)
    return {
        "script": [PROBE],
        "relative": ["relative.py"],
        "link": ["link.py"],
        "module": ["-m", "package.probe"],
        "path": ["--run-path", PROBE],
        "folder": ["./unpacked"],
        "archive": [packed],
    }


def flat(value, name=""):
    if isinstance(value, dict):
        return {n: v for key, inner in value.items() for n, v in flat(inner, f"{name}.{key}").items()}
    return {name: re.sub(r"ddprun-[\w.-]+|0x[0-9a-f]+", "...", json.dumps(value))}


def differing(ours, theirs):
    a, b = flat(ours), flat(theirs)
    return {name: (a.get(name), b.get(name)) for name in a.keys() | b.keys() if a.get(name) != b.get(name)}


NEW_IN_EACH_RUN = {".environment.MASTER_PORT", ".environment.TORCHELASTIC_RUN_ID", ".random", ".modules"}


def probed(folder, preload, way, *words, **variables):
    found = folder / ("forked" if preload else "cold")
    found.mkdir()
    done = ddprun(folder, *words, *preload, *way, found, "a b", "${local_rank}", workers=2, **variables)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return [json.loads((found / f"{rank}.json").read_text().replace(str(found), "FOUND")) for rank in (0, 1)]


@pytest.mark.parametrize("way", ["script", "relative", "link", "module", "path", "folder", "archive"])
def test_a_forked_worker_finds_what_a_cold_one_finds(folder, way):
    command = ways(folder)[way]
    cold = probed(folder, COLD, command)
    assert imports(folder) == []
    forked = probed(folder, FORKED, command)
    assert len(imports(folder)) == 1
    for ours, theirs in zip(forked, cold):
        # A word that is another one for each worker is not replaced in the command line that the kernel keeps.
        assert differing(ours, theirs).keys() - NEW_IN_EACH_RUN == {".kernel.cmdline"}, differing(ours, theirs)
        assert ours["kernel"]["cmdline"][:-2] == theirs["kernel"]["cmdline"][:-2]
        missing = set(theirs["modules"]) - set(ours["modules"])
        assert not missing
        more = set(ours["modules"]) - set(theirs["modules"])
        assert "counted" in more and "fork_server" not in more
    assert forked[0]["random"] != forked[1]["random"]


@pytest.mark.parametrize(
    "words, variables",
    [
        (["--numa-binding", "node"], {}),
        (["--log-dir", "logs"], {}),
        ([], {"OMP_NUM_THREADS": "3", "PYTHONHASHSEED": "7", "PYTHONWARNINGS": "error::UserWarning"}),
        ([], {"PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1"}),
    ],
)
def test_flags_and_variables_mean_the_same(folder, words, variables):
    cold = probed(folder, COLD, [PROBE], *words, **variables)
    forked = probed(folder, FORKED, [PROBE], *words, **variables)
    assert len(imports(folder)) == 1
    for ours, theirs in zip(forked, cold):
        assert differing(ours, theirs).keys() - NEW_IN_EACH_RUN == {".kernel.cmdline"}, differing(ours, theirs)


def test_a_sitecustomize_of_the_user_is_imported_as_before(folder):
    write(folder, "import builtins\nbuiltins.customized = True\n", "sitecustomize.py")
    program = write(folder, "import sys\nprint(customized, sys.modules['sitecustomize'].__file__)\n")
    done = ddprun(folder, *FORKED, program)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"True {folder}/sitecustomize.py" in done.stdout
    assert len(imports(folder)) == 1
    write(folder, "raise ValueError('of the user')\n", "sitecustomize.py")
    program = write(folder, "print('goes on')\n")
    cold, forked = (ddprun(folder, *preload, program) for preload in (COLD, FORKED))
    assert (forked.returncode, forked.stdout, forked.stderr) == (cold.returncode, cold.stdout, cold.stderr)
    assert "ValueError: of the user" in forked.stderr


def test_a_worker_reads_stdin(folder):
    program = write(folder, "print('read', [input(), input()])\n")
    said = folder / "said"
    said.write_text("one\ntwo\n")
    with said.open() as stdin:
        done = subprocess.run(
            [DDPRUN, "--standalone", *FORKED, str(program)],
            env=environment(folder), stdin=stdin, stdout=subprocess.PIPE, timeout=60, check=True,
        )  # fmt: skip
    assert b"read ['one', 'two']" in done.stdout
    assert len(imports(folder)) == 1


# ---- How a worker ends

ENDS = {
    "falls off": "print('no line end', end='')",
    "raises": "def f():\n    g()\ndef g():\n    raise ValueError('in g')\nf()",
    "raises from": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e",
    "exits": "import sys; sys.exit(3)",
    "exits with words": "import sys; sys.exit('said at the end')",
    "exits with None": "raise SystemExit",
    "exits at once": "import os; os._exit(7)",
    "interrupted": "raise KeyboardInterrupt",
    "syntax": "def f(:\n",
    "tabs": "if True:\n\tx = 1\n        y = 2\n",
    "stack": "import traceback\ndef f():\n    traceback.print_stack()\nf()",
    "atexit": "import atexit, sys\natexit.register(sys.stderr.write, 'at the end\\n')\nraise ValueError('first')",
    "atexit fails": "import atexit\natexit.register(lambda: 1 / 0)\n",
    "a hook": "import sys\nsys.excepthook = lambda *a: print(a[0], a[2].tb_lineno, a[2].tb_next)\n1 / 0",
    "a thread": "import threading\nthreading.Timer(0.2, print, ['later']).start()\nprint('main')",
    "a thread fails": "import threading\ndef f():\n    1 / 0\nthreading.Thread(target=f).start()",
    "a signal": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "terminated": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "a closed pipe": "import signal; print(signal.getsignal(signal.SIGPIPE))",
    "warns": "import warnings; warnings.warn('careful')",
    "imports nothing": "import there_is_no_such_module",
    "a group": "raise ExceptionGroup('all', [ValueError(1), TypeError(2)])",
    "recursion": "def f():\n    f()\nf()",
}


def said(done):
    """But for what the verdict has of the one process: its number and how long it ran."""
    text = re.sub(r"0x[0-9a-f]+|pid \d+|after \d+(\.\d+)? m?s|\d+(\.\d+)? m?s\b", "...", done.stderr)
    return done.returncode, done.stdout, text


@pytest.mark.parametrize("end", ENDS)
def test_a_forked_worker_ends_as_a_cold_one(folder, end):
    program = write(folder, ENDS[end])
    cold, forked = (said(ddprun(folder, *preload, program)) for preload in (COLD, FORKED))
    assert forked == cold
    assert len(imports(folder)) == 1


def test_a_module_that_is_not_there_fails_as_in_a_cold_start(folder):
    cold, forked = (said(ddprun(folder, *preload, "-m", "nowhere.at_all")) for preload in (COLD, FORKED))
    assert forked == cold
    assert "No module named" in forked[2]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_in_a_worker(folder, method):
    program = write(
        folder,
        "import multiprocessing, os\n"
        "class Sent:\n"
        "    def __init__(self, n): self.n = n\n"
        "def double(sent): return sent.n * 2, os.environ['RANK'], os.getppid()\n"
        "if __name__ == '__main__':\n"
        f"    with multiprocessing.get_context('{method}').Pool(2) as pool:\n"
        "        found = pool.map(double, [Sent(1), Sent(2)])\n"
        "    print([one[:2] for one in found])\n",
    )
    done = ddprun(folder, *FORKED, program, workers=2)
    assert done.returncode == 0, done.stderr
    for rank in "01":
        assert f"[{rank}] [(2, '{rank}'), (4, '{rank}')]" in done.stdout
    assert len(imports(folder)) == 1


# ---- torch


def test_ranks_that_are_forked_from_torch(folder):
    """Threads, seeds and numbers as in a cold start, and collectives."""
    program = write(
        folder,
        "import os, sys, counted, numpy, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "x = torch.ones(4) * (dist.get_rank() + 1)\n"
        "dist.all_reduce(x)\n"
        "y = torch.randn(300, 300)\n"
        "print('sum', x[0].item(), torch.get_num_threads())\n"
        "print('drawn', numpy.random.random(), torch.rand(1).item())\n"
        "torch.manual_seed(1)\n"
        "print('sum', torch.initial_seed(), (y @ y).isnan().any().item(), torch.rand(1).item())\n"
        "numpy.ones((500, 500)) @ numpy.ones((500, 500))\n"
        "dist.destroy_process_group()\n",
    )
    results = []
    for preload in (COLD, ["--preload", "torch,numpy.random,counted"]):
        done = ddprun(folder, *preload, program, workers=2)
        said = [line for line in done.stderr.splitlines() if "still being imported" not in line]  # as on a busy machine
        assert (done.returncode, said) == (0, []), done.stderr
        results.append(sorted(line for line in done.stdout.splitlines() if "sum" in line))
        drawn = re.findall(r"drawn ([\d.e-]+) ([\d.e-]+)", done.stdout)
        assert len({number for rank in drawn for number in rank}) == 4, drawn
    assert results[0] == results[1]
    assert len(imports(folder)) == 3  # two cold workers, one server


def test_the_first_optimizer_finds_what_it_imports(folder):
    """torch.optim leaves 900 modules to the moment in which a program makes its first optimizer."""
    program = write(
        folder,
        "import sys, torch\n"
        "before = set(sys.modules)\n"
        "torch.optim.AdamW([torch.ones(2, requires_grad=True)])\n"
        "print('new:', *sorted(set(sys.modules) - before))\n",
    )
    done = ddprun(folder, "--preload", "torch", program)
    assert done.returncode == 0, done.stderr
    assert "[0] new:\n" in done.stdout
