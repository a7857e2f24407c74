# SPDX-License-Identifier: Apache-2.0
"""--dry-run shows what would run, starts nothing and makes no file."""

import re
import shlex

from conftest import DDPRUN, TOKEN, clean_environment, run


def test_it_says_what_the_run_then_does(tmp_path):
    """The environment that is shown is the one that a worker has."""
    flags = ["--standalone", "--nproc-per-node", "2", "--role", "it's", "--max-restarts", "3"]
    shown = run([DDPRUN, "--dry-run", *flags, "sh", "-c", f"env > {tmp_path}/$RANK"])
    assert shown.returncode == 0 and not shown.stderr, shown.stderr
    assert not list(tmp_path.iterdir())
    done = run([DDPRUN, *flags, "sh", "-c", f"env > {tmp_path}/$RANK"])
    assert done.returncode == 0, done.stderr
    workers = [dict(line.split("=", 1) for line in (tmp_path / rank).read_text().splitlines()) for rank in "01"]
    entries = re.findall(r"^    (\w+)=(.*)$", shown.stdout, re.MULTILINE)
    added = set(workers[0]) - set(clean_environment()) - {"PWD", "SHLVL", "_", "OLDPWD"}
    assert {name for name, _ in entries} == added
    for name, value in entries:
        if value.startswith("<"):
            continue
        first, last = re.fullmatch(r"(.*?)(?: to (\w+))?", value).groups()
        assert workers[0][name] == shlex.split(first)[0], name
        assert workers[1][name] == (last or shlex.split(first)[0]), name


def test_the_secret_is_neither_shown_nor_made(tmp_path):
    command = [DDPRUN, "--dry-run", "--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", "true"]
    shown = run(command)
    assert "DDPRUN_TOKEN of the environment" in shown.stdout and TOKEN not in shown.stdout
    env = clean_environment(HOME=str(tmp_path), XDG_CONFIG_HOME="")
    del env["DDPRUN_TOKEN"]
    shown = run(command, env=env)
    assert f"{tmp_path}/.config/ddprun/token, which would be created" in shown.stdout
    assert not list(tmp_path.iterdir())


def test_what_is_wrong_is_found_as_in_a_run():
    done = run([DDPRUN, "--dry-run", "--standalone", "no-such-program"])
    assert done.returncode == 127 and not done.stdout


def test_a_script_by_the_name_of_its_interpreter(tmp_path):
    (tmp_path / "job.py").write_text("raise SystemExit('ran')")
    shown = run([DDPRUN, "--dry-run", "--monitor-interval=1", tmp_path / "job.py", "--text", "a b"])
    assert shown.returncode == 0
    assert re.search(r"command +\S+/python3 -u \S+/job.py --text 'a b'\n", shown.stdout), shown.stdout
    assert "note: --monitor-interval has no effect" in shown.stdout
