# SPDX-License-Identifier: Apache-2.0
"""Fault injection from Python: the helper itself, a log disk that is full for a while, a TMPDIR that hangs."""

import subprocess
import sys

import pytest

from conftest import DDPRUN, REPO, clean_environment, run, start, wait_for

sys.path.insert(0, str(REPO / "tests" / "testing"))
from faults import Faults, limit_descriptors, small_disk, with_limit  # noqa: E402


@pytest.fixture
def faults(tmp_path):
    made = Faults(tmp_path)
    yield made
    made.clear()  # nothing hangs longer than its test


def test_a_fault_is_switched_on_and_off(faults, tmp_path):
    data = tmp_path / "data"
    data.write_text("words")
    env = clean_environment(**faults.env())
    assert run(["cat", data], env=env).stdout == "words"
    faults.set(f"open EMFILE path={data}")
    assert "Too many open files" in run(["cat", data], env=env).stderr
    assert [hit.split()[1:] for hit in faults.hits()] == [["open", "EMFILE", str(data)]]
    faults.clear()
    assert run(["cat", data], env=env).stdout == "words"


def test_a_hung_call_goes_on_when_the_fault_is_over(faults, tmp_path):
    data = tmp_path / "data"
    data.write_text("words")
    faults.set(f"read hang path={data}")
    process = start(["cat", data], env=clean_environment(**faults.env()))
    faults.wait_for_hit(f"read hang {data}")
    assert process.poll() is None
    faults.clear()
    assert process.communicate(timeout=60)[0] == "words"


def test_limits_and_small_disks(tmp_path):
    done = run(with_limit("--fsize=4096", ["sh", "-c", f"head -c 5000 /dev/zero > {tmp_path}/big"]))
    assert done.returncode != 0 and (tmp_path / "big").stat().st_size == 4096
    script = "import sys\nprint('ready', flush=True)\nsys.stdin.read(1)\nopen('/dev/null')"
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    limit_descriptors(process.pid, 3)
    assert "Too many open files" in process.communicate("x", timeout=60)[1]
    with small_disk(tmp_path / "disk", 65536) as made:
        if made:
            full = run(["sh", "-c", f"head -c 100000 /dev/zero > {tmp_path}/disk/big"])
            assert "No space left on device" in full.stderr


def test_a_log_disk_that_is_full_for_a_while_loses_nothing(faults, tmp_path):
    """The worker goes on meanwhile; what it said is in the file once the disk takes it again."""
    script = f"echo one; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; echo two; exit 0"
    faults.set(f"write ENOSPC program=ddprun path={tmp_path}/logs")
    process = start(
        [DDPRUN, "--log-dir", tmp_path / "logs", "--rdzv-id=r", "--redirects=1", "sh", "-c", script],
        env=clean_environment(**faults.env()),
    )
    faults.wait_for_hit("write ENOSPC")
    faults.clear()
    (tmp_path / "go").touch()
    err = process.communicate(timeout=60)[1]
    assert process.returncode == 0, err
    assert "No space left on device; the run goes on" in err
    assert "the log files are written again" in err
    assert (tmp_path / "logs/r/round_1/rank_0/stdout.log").read_text() == "one\ntwo\n"


def test_a_slow_reader_and_a_tmpdir_that_hangs_hold_no_worker_up(faults, tmp_path):
    """What nobody has read yet waits in memory, and the agent's loop goes on."""
    hung, done = tmp_path / "hung", tmp_path / "done"
    hung.mkdir()
    faults.set(f"open,write,unlink hang program=ddprun path={hung}")
    process = start(
        [DDPRUN, "sh", "-c", f"seq 1000000; touch {done}"],
        env=clean_environment(TMPDIR=str(hung), **faults.env()),
    )
    wait_for("the worker's end", done.exists)  # only now its 11 MB are read
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out.count("\n") == 1000000 and err == ""
    assert faults.hits() == []


# Its worker says that it can be kept, so that a spare is parked; the second exec of ddprun's agent is the spare's, and hangs.
KEPT = """
import os, pathlib, socket, sys, time

if os.environ["DDPRUN_ROUND"] == "2":
    sys.exit(0)
agent = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
agent.connect(os.environ["DDPRUN_NOTIFY_SOCKET"])
agent.send(b"KEEP=1")
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.01)
sys.exit(int(sys.argv[2]))
"""


@pytest.mark.parametrize("code", [0, 5])
def test_a_spare_that_hangs_holds_up_no_round(faults, tmp_path, code):
    (tmp_path / "job.py").write_text(KEPT)
    faults.set("exec hang program=ddprun from=2 times=1")
    words = ["--standalone", "--max-restarts", 1, "--spares", 1, tmp_path / "job.py", tmp_path / "go", code]
    process = start([DDPRUN, *words], env=clean_environment(**faults.env()))
    faults.wait_for_hit("exec hang")
    (tmp_path / "go").touch()
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert "a spare worker is given up, because it could not be started within 5 s: the disk of " in err
    assert ("restart 1 of 1 as round 2: rank 0" in err) == (code == 5)
    assert "SIGKILL" not in err
