# SPDX-License-Identifier: Apache-2.0
"""`ddpctl capsule` and `ddpctl replay`, as users type them."""

import concurrent.futures
import contextlib
import json
import os
import random
import signal
import subprocess
import tarfile

import pytest
from conftest import BIN, BUILD, DDPRUN, TOKEN, clean_environment, free_port, run, start, wait_for

DDPCTL = str(BIN / "ddpctl")
SIMULATION = str(BUILD / "tests" / "ddprun-simulation")
SAME = "the verdict is the recorded one\n"
# Rank 1 fails in the first round, and all succeed in the second; with "twice" it fails again.
FAILS = """import os, sys, time
if os.environ["RANK"] == "1" and (os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" or "twice" in sys.argv):
    sys.exit(7)
time.sleep(0.3)
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "fails.py").write_text(FAILS)
    yield tmp_path / "state" / "ddprun" / "runs"
    for one in runs():
        with contextlib.suppress(ProcessLookupError):
            if one["state"] in ("running", "starting"):
                os.kill(one["pid"], signal.SIGTERM)
    wait_for("the runs' ends", lambda: all(one["state"] in ("ended", "lost") for one in runs()))


def ctl(*words, code=0, **options):
    asked = run([DDPCTL, *words], **options)
    assert asked.returncode == code, asked.stderr + asked.stdout
    return asked.stdout if code == 0 else asked.stderr + asked.stdout


def runs():
    return json.loads(ctl("runs", "--json"))["runs"]


def detach(*words):
    run([DDPRUN, "--detach", *words])
    return runs()[0]["name"]


def past(*words):
    name = detach(*words)
    wait_for("the run's end", lambda: runs()[0]["state"] == "ended")
    return name


def test_a_run_is_replayed_to_its_verdict(home, tmp_path):
    past("-n", "2", "--max-restarts", "1", str(tmp_path / "fails.py"), "twice")
    told = ctl("replay")
    assert told.endswith(SAME)
    for words in ("reports: rank 1 (", "round 1 ends: rank 1 (", "round 2 begins: 2 workers on 1 node", "the run ends: rank 1 ("):
        assert words in told, told
    answer = json.loads(ctl("replay", "--json"))
    assert (answer["version"], answer["whole"], answer["same"]) == (1, True, True)
    begins = [line["at"] for line in answer["lines"] if line["text"].startswith("round ") and " begins" in line["text"]]
    assert len(begins) == 2 and 0 <= begins[0] < begins[1] <= answer["seconds"]
    # Between the two rounds, as `ddpctl status` would have shown it.
    then = ctl("replay", "--until", f"{begins[1] - 0.0005:.4f}")
    assert "round 2 begins" not in then and "last failure: rank 1 (" in then and "of 1 restarts used" in then, then


def test_a_verdict_that_differs_is_told_with_the_place(home, tmp_path):
    name = past("-n", "2", str(tmp_path / "fails.py"))
    file = home / name / "verdict.json"
    verdict = json.loads(file.read_text())
    verdict["cause"]["rank"] = 0
    file.write_text(json.dumps(verdict))
    assert "the verdict is not the recorded one: cause.rank is 0 in the record and 1 in the replay" in ctl("replay", code=1)


def test_a_capsule_has_no_secret_and_is_replayed_elsewhere(home, tmp_path, monkeypatch):
    name = past("-n", "2", "--master-port", str(free_port()), str(tmp_path / "fails.py"), "--api-key", "hunter2")
    file = tmp_path / "run.tar.gz"
    assert f"wrote {file}, " in ctl("capsule", "-o", str(file))
    with tarfile.open(file) as packed:
        contents = {member.name: packed.extractfile(member).read() for member in packed.getmembers() if member.isfile()}
    expected = {f"{name}/{one}" for one in ("run.json", "verdict.json", "events.jsonl", "steps.jsonl", "output.txt", "doctor.json")}
    assert expected <= set(contents) <= expected | {f"{name}/samples.jsonl"}
    for text in contents.values():
        assert TOKEN.encode() not in text and b"hunter2" not in text
    assert json.loads(contents[f"{name}/doctor.json"])["nodes_wanted"] == 1
    assert b"exited with code 7" in contents[f"{name}/output.txt"]
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "of somebody else"))
    assert ctl("replay", str(file)).endswith(SAME)
    # By default in the folder where it was asked for.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    ctl("capsule", cwd=tmp_path)
    assert (tmp_path / f"{name}.tar.gz").exists()


def test_a_run_becomes_a_scenario_that_ends_alike(home, tmp_path):
    """A node that joins from elsewhere and is killed with its warden, and a failure in the round after it."""
    port = str(free_port())
    words = ["--nnodes", "1:2", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "job", "--lease", "1", "--last-call", "2"]
    program = ["--", "sh", "-c", "[ $TORCHELASTIC_RESTART_COUNT = 0 ] || exit 9; sleep 1000 & wait"]
    starter = start([DDPRUN, "--detach", *words, "--max-restarts", "1", "--node-rank", "0", *program], stdout=subprocess.PIPE)
    wait_for("the run", lambda: runs() and runs()[0]["service"])
    other = start([DDPRUN, *words, "--max-restarts", "1", *program], start_new_session=True)
    assert starter.wait(timeout=60) == 0
    wait_for("both nodes", lambda: "round 1 begins: 2 workers" in ctl("replay"))
    os.kill(other.pid, signal.SIGKILL)
    wait_for("the run's end", lambda: runs()[0]["state"] == "ended")
    assert runs()[0]["exit_code"] == 9
    assert ctl("replay").endswith(SAME)
    scenario = tmp_path / "scenario.txt"
    ctl("replay", "--scenario", str(scenario))
    text = scenario.read_text()
    assert "start n1" in text and "crash n1" in text and "fail n0 code=9" in text, text
    played = run([SIMULATION, str(scenario)])
    assert played.returncode == 0, text + played.stdout + played.stderr


def test_what_cannot_be_replayed_is_said(home, tmp_path):
    assert "ddpctl: no detached run" in ctl("replay", code=1) or "has no detached run" in ctl("replay", code=1)
    file = tmp_path / "none.tar.gz"
    assert f"{file} is no capsule that tar can unpack here: tar exited with code 2" in ctl("replay", str(file), code=1)
    with tarfile.open(file, "w:gz") as packed:
        packed.add(tmp_path / "fails.py", "fails.py")
    assert f"{file} has no run in it" in ctl("replay", str(file), code=1)
    name = past("-n", "1", "true")
    (home / name / "steps.jsonl").unlink()
    assert "its steps are not recorded" in ctl("replay", code=1)
    assert "cannot write /proc/none.tar.gz: tar exited with code 2" in ctl("capsule", "-o", "/proc/none.tar.gz", code=1)


ONE_OF_MANY = """import os, random, signal, sys, time
at = random.Random(sys.argv[1] + os.environ["RANK"] + os.environ["TORCHELASTIC_RESTART_COUNT"])
time.sleep(at.uniform(0, 0.2))
what = at.randrange(8)
if what == 0:
    sys.exit(at.randrange(1, 120))
if what == 1:
    os.kill(os.getpid(), at.choice([signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM]))
"""


def chaotic(seed, folder):
    """A detached run of one or two nodes in which workers fail, and whose nodes are killed, stopped or drained."""
    chance = random.Random(seed)
    env = clean_environment(XDG_STATE_HOME=str(folder / str(seed)))
    program = [str(folder / "one.py"), str(seed)]
    nodes = chance.choice([1, 1, 2])
    words = ["--nproc-per-node", str(chance.choice([1, 2])), "--max-restarts", str(chance.randrange(3))]
    words += ["--lease", "1", "--last-call", "0.2"]
    if nodes == 2:
        words += ["--nnodes", "1:2", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", str(seed), "--node-rank"]
    quiet = {"env": env, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    starter = subprocess.Popen([DDPRUN, "--detach", *words, *(["0"] if nodes == 2 else []), *program], **quiet)

    def ask(*what):
        return subprocess.run([DDPCTL, *what], env=env, capture_output=True, text=True, timeout=60)

    def the_run():
        return next(iter(json.loads(ask("runs", "--json").stdout)["runs"]), {"state": "", "service": None})

    # The service is where it is asked for first.
    wait_for("its service", lambda: the_run()["service"] or the_run()["state"] == "ended")
    other = subprocess.Popen([DDPRUN, *words, "1", *program], **quiet) if nodes == 2 else None
    starter.wait(timeout=60)
    if other is not None and chance.random() < 0.3:
        other.kill()
    elif chance.random() < 0.1:
        ask("stop")
    elif chance.random() < 0.1:
        ask("drain", "1")
    wait_for("its end", lambda: the_run()["state"] == "ended")
    if other is not None:
        other.terminate()  # it may wait for a run that is over
        other.wait(timeout=60)
    return ask("replay")


@pytest.mark.nightly
def test_runs_with_faults_are_replayed_to_the_same_verdict(tmp_path):
    (tmp_path / "one.py").write_text(ONE_OF_MANY)
    count = int(os.environ.get("DDPRUN_REPLAYED_RUNS", "200"))
    ended = {"verdict": 0, "none": 0}
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for seed, replayed in enumerate(pool.map(lambda seed: chaotic(seed, tmp_path), range(count))):
            assert replayed.returncode == 0, (seed, replayed.stdout, replayed.stderr)
            ended["verdict" if replayed.stdout.endswith(SAME) else "none"] += 1
    print(f"{count} runs replayed: {ended['verdict']} to the recorded verdict, {ended['none']} without one")
    assert ended["verdict"] > 0.9 * count, ended
