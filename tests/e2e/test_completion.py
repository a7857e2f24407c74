# SPDX-License-Identifier: Apache-2.0
"""What shells complete on a command line of ddprun, and the manual page: in the shells and in man themselves."""

import os
import pty
import select
import shutil
import subprocess
import time

import pytest
from conftest import BUILD, DDPRUN, run


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """A function: the file of a shell's completion."""
    folder = tmp_path_factory.mktemp("completion")

    def make(shell):
        done = run([DDPRUN, "--print-completion", shell])
        assert done.returncode == 0, done.stderr
        path = folder / f"ddprun.{shell}"
        path.write_text(done.stdout)
        return path

    return make


def bash_completes(script, *words, cwd=None):
    """COMPREPLY where the last of `words` is being written."""
    program = f'source {script("bash")}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ddprun; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = run(["bash", "--norc", "-c", program, "bash", "ddprun", *words], cwd=cwd)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.split()


def test_bash_knows_of_it(script):
    done = run(["bash", "--norc", "-c", f"source {script('bash')}; complete -p ddprun"])
    assert done.stdout.strip() == "complete -o filenames -F _ddprun ddprun", done.stderr


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--nno"], ["--nnodes"]),
        (["--nproc_per"], ["--nproc_per_node"]),
        (["--nnodes", "2", "--stand"], ["--standalone"]),
        (["--nproc-per-node", "g"], ["gpu"]),
        (["--nproc_per_node", "=", "a"], ["auto"]),
        (["--nproc-per-node", "="], ["auto", "gpu", "cpu"]),
        (["--start-method", ""], ["spawn", "fork", "forkserver"]),
        (["--help", "res"], ["restarts"]),
        (["stat"], ["status"]),
        (["status", "--js"], ["--json"]),
        (["simulate", "--mt"], ["--mtbf"]),
        (["status", "--nno"], []),
        (["train", "--nno"], []),
        (["--nnodes", "2", "train", "--nno"], []),
        (["--role", "--nno"], []),
    ],
)
def test_bash_completes(script, tmp_path, words, answer):
    answered = bash_completes(script, *words, cwd=tmp_path)
    assert [word for word in answered if not answer or word in answer] == answer, answered


def test_bash_completes_files_and_programs(script, tmp_path):
    (tmp_path / "my.yaml").touch()
    (tmp_path / "myfolder").mkdir()
    assert sorted(bash_completes(script, "--config", "my", cwd=tmp_path)) == ["my.yaml", "myfolder"]
    assert bash_completes(script, "--log-dir", "my", cwd=tmp_path) == ["myfolder"]
    assert "my.yaml" in bash_completes(script, "my", cwd=tmp_path)
    assert "printf" in bash_completes(script, "print", cwd=tmp_path)


def test_tab_in_a_bash_on_a_terminal(script):
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], {**os.environ, "TERM": "dumb", "PS1": "ready> "})
    try:
        seen = b""
        deadline = time.monotonic() + 30

        def wait_for(text):
            nonlocal seen
            while text not in seen:
                readable, _, _ = select.select([terminal], [], [], deadline - time.monotonic())
                assert readable, seen
                seen += os.read(terminal, 4096)
            seen = b""

        wait_for(b"ready> ")
        os.write(terminal, f"source {script('bash')}\n".encode())
        wait_for(b"ready> ")
        os.write(terminal, b"ddprun --nproc-p\t")
        wait_for(b"--nproc-per-node ")
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(terminal)


needs = {name: pytest.mark.skipif(not shutil.which(name), reason=f"no {name} here") for name in ("zsh", "fish", "tcsh", "man")}


@needs["fish"]
@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("--nno", ["--nnodes"]),
        ("--nproc-per-node g", ["gpu"]),
        ("--help rest", ["restarts"]),
        ("status --js", ["--json"]),
        ("train --nno", []),
    ],
)
def test_fish_completes(script, tmp_path, line, answer):
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = run(["fish", "--no-config", "-c", f"source {script('fish')}; complete -C 'ddprun {line}'"], env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    answered = [entry.split("\t")[0] for entry in done.stdout.splitlines()]
    assert [word for word in answered if not answer or word in answer] == answer, answered


@needs["zsh"]
def test_zsh_completes(script, tmp_path):
    """On a terminal, as zsh completes nowhere else."""
    program = (
        "zmodload zsh/zpty; zpty z zsh -f -i\n"
        f"zpty -w z 'PS1=; autoload -Uz compinit; compinit -u -D; source {script('zsh')}; cd {tmp_path}; echo read''y'\n"
        "zpty -r z line '*ready*'\n"
        "zpty -w -n z $'ddprun --nproc-p\\t'\n"
        "zpty -r z line '*--nproc-per-node*' && print found; zpty -d z"
    )
    done = run(["zsh", "-f", "-c", program], timeout=60)
    assert "found" in done.stdout, (done.stdout, done.stderr)


@needs["tcsh"]
def test_tcsh_takes_it(script):
    done = run(["tcsh", "-f", "-c", f"source {script('tcsh')}; complete ddprun"])
    assert done.returncode == 0 and "nproc-per-node" in done.stdout, done.stderr


@needs["man"]
def test_the_manual_page_is_well_formed(tmp_path):
    page = tmp_path / "ddprun.1"
    page.write_text(run([DDPRUN, "--print-man"]).stdout)
    env = {**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8"}
    done = run(["man", "--warnings", "-l", page], env=env)
    assert done.returncode == 0 and not done.stderr, done.stderr
    for text in ("--nproc-per-node", "EXIT STATUS", "PET_NAME", "ddprun status"):
        assert text in done.stdout


def test_what_is_installed(tmp_path):
    subprocess.run(
        ["cmake", "--install", BUILD / "launcher", "--prefix", tmp_path], check=True, stdout=subprocess.DEVNULL, timeout=60
    )
    for file in (
        "bin/ddprun",
        "share/man/man1/ddprun.1",
        "share/bash-completion/completions/ddprun",
        "share/zsh/site-functions/_ddprun",
        "share/fish/vendor_completions.d/ddprun.fish",
    ):
        assert (tmp_path / file).stat().st_size > 0, file
