# SPDX-License-Identifier: Apache-2.0
"""A signal in each phase of a training, on each rank: what was trained is saved, the run can go on, the exit code is 128 +
the signal. The phases are those that the ranks report themselves, so a test knows when it is in one."""

import re
import signal
import socket
import threading

import pytest
import torch
from conftest import REPO, TRAIN, clean_environment, finish_all, free_port, run, start, wait_for
from test_data import make_cifar10

RANKS = 2
MODEL = ["--model", "simple-cnn", "--dataset", "synthetic", "--samples", "256", "--batch-size", "4", "--log-every", "1"]
# An evaluation of some seconds: one image at a time, six views of each.
SLOW_EVALUATION = ["--model", "netresdeep", "--eval-batch-size", "1", "--tta", "mirror-translate", "--samples", "1200"]


class Rank:
    """One rank, started as by hand, and what it says of where it is."""

    def __init__(self, rank, port, words, folder, env):
        path = folder / f"notify-{rank}"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.reports = []
        threading.Thread(target=self.listen, daemon=True).start()
        # NOTIFY_SOCKET is what an agent gives to its workers.
        own = clean_environment(
            RANK=str(rank),
            WORLD_SIZE=str(RANKS),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            DDPRUN_NOTIFY_SOCKET=str(path),
            OMP_NUM_THREADS="1",
            **env,
        )
        # Who starts the tests may ignore it (nohup).
        self.process = start([TRAIN, *words], env=own, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))

    def listen(self):
        while True:
            report = self.socket.recv(4096).decode()
            self.reports.append(dict(line.split("=", 1) for line in report.splitlines() if "=" in line))

    def has_been_in(self, section):
        return any(report.get("SECTION") == section for report in self.reports)

    def step(self):
        return max((int(report["STEP"]) for report in self.reports if "STEP" in report), default=0)


@pytest.fixture
def faults(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(REPO / "tests" / "testing")
    return pytest.importorskip("faults", reason="built without the faults' library").Faults(tmp_path)


@pytest.fixture
def training(tmp_path):
    """training(*settings): the ranks of a training in `tmp_path`."""
    ranks = []

    def begin(*words, env=None):
        port = free_port()
        words = [*MODEL, *words, "--output-dir", tmp_path, "--timeout", "60"]
        ranks.extend(Rank(rank, port, words, tmp_path, env or {}) for rank in range(RANKS))
        return ranks

    yield begin
    for rank in ranks:
        if rank.process.poll() is None:
            rank.process.kill()


def reached(rank, question, what):
    wait_for(what, lambda: question() or rank.process.poll() is not None)
    assert rank.process.poll() is None, rank.process.communicate()


def ends(ranks, number=signal.SIGTERM, timeout=28):
    """Within less than launchers' usual 30 s."""
    results = finish_all([rank.process for rank in ranks], timeout)
    assert [code for code, _, _ in results] == [128 + number] * RANKS, results
    return results


def steps_saved(folder):
    return sorted(int(re.search(r"step-(\d+)", path.name).group(1)) for path in folder.glob("checkpoints/step-*.safetensors"))


def resumed(folder, *more):
    done = run([TRAIN, *MODEL, *more, "--output-dir", folder, "--resume", "auto"])
    assert done.returncode == 0, done.stderr
    assert "goes on from" in done.stdout, done.stdout
    return done.stdout


LONG = ["--epochs", "1000", "--checkpoint-seconds", "1000", "--no-eval"]


@pytest.mark.parametrize("victim", range(RANKS))
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_in_a_step(training, tmp_path, victim, number):
    ranks = training(*LONG)
    reached(ranks[victim], lambda: ranks[victim].step() >= 3, "step 3")
    ranks[victim].process.send_signal(number)
    results = ends(ranks, number)
    (step,) = steps_saved(tmp_path)
    assert f"ended by {number.name} after step {step}; " in results[0][2], results
    resumed(tmp_path, *LONG, "--max-steps", step + 2)


@pytest.mark.parametrize("victim", range(RANKS))
def test_in_a_long_evaluation(training, tmp_path, victim):
    """It is broken off, and made up for when the training goes on."""
    more = [*SLOW_EVALUATION, "--max-steps", "6", "--eval-every", "0.02", "--checkpoint-seconds", "1000"]
    ranks = training(*more)
    reached(ranks[victim], lambda: ranks[victim].has_been_in("evaluate"), "an evaluation")
    ranks[victim].process.send_signal(signal.SIGTERM)
    results = ends(ranks)
    assert "test accuracy" not in results[0][1], results
    (step,) = steps_saved(tmp_path)
    assert step < 6
    said = resumed(tmp_path, *more, "--eval-batch-size", "100", "--tta", "off")
    assert f"step {step} test accuracy" in said, said


def test_in_the_last_evaluation(training, tmp_path):
    more = [*SLOW_EVALUATION, "--max-steps", "2", "--checkpoint-seconds", "1000"]
    ranks = training(*more)
    reached(ranks[1], lambda: ranks[1].has_been_in("evaluate"), "the evaluation")
    ranks[1].process.send_signal(signal.SIGTERM)
    ends(ranks)
    assert steps_saved(tmp_path) == [2]
    assert not (tmp_path / "cifar_net.pth").exists()
    assert "test accuracy" in resumed(tmp_path, *more, "--eval-batch-size", "100", "--tta", "off")
    assert (tmp_path / "cifar_net.pth").is_file()


@pytest.mark.parametrize("late", [False, True], ids=["once", "then to the other rank"])
def test_while_it_saves(training, tmp_path, faults, late):
    """Rank 0's disk takes its time; a rank that waits for it hears of the signal only then."""
    ranks = training(*LONG, env=faults.env())
    reached(ranks[0], lambda: ranks[0].step() >= 3, "step 3")
    faults.set(f"fsync hang path={tmp_path}/checkpoints/step-")
    ranks[0].process.send_signal(signal.SIGTERM)
    faults.wait_for_hit("fsync hang")
    if late:
        ranks[1].process.send_signal(signal.SIGTERM)
    # Longer than a step may take after a signal.
    slow = threading.Timer(5, faults.clear)
    slow.start()
    ends(ranks)
    slow.join()
    (step,) = steps_saved(tmp_path)
    resumed(tmp_path, *LONG, "--max-steps", step + 2)


def test_while_the_last_checkpoint_is_written(training, tmp_path, faults):
    """All has been trained: the results are written, and that is the run's end."""
    faults.set(f"fsync hang path={tmp_path}/checkpoints/step-")
    ranks = training("--max-steps", "4", "--no-eval", "--checkpoint-seconds", "1000", env=faults.env())
    faults.wait_for_hit("fsync hang", timeout=60)
    for rank in ranks:
        rank.process.send_signal(signal.SIGTERM)
    slow = threading.Timer(4, faults.clear)
    slow.start()
    results = finish_all([rank.process for rank in ranks], 30)
    assert [code for code, _, _ in results] == [0] * RANKS, results
    assert steps_saved(tmp_path) == [4]
    assert torch.load(tmp_path / "cifar_net.pth")


@pytest.mark.parametrize("victim", range(RANKS))
def test_while_the_results_are_written(training, tmp_path, faults, victim):
    faults.set(f"fsync hang path={tmp_path}/cifar_net.pth")
    ranks = training("--max-steps", "2", "--no-eval", "--checkpoint-seconds", "1000", env=faults.env())
    faults.wait_for_hit("fsync hang", timeout=60)
    ranks[victim].process.send_signal(signal.SIGTERM)
    slow = threading.Timer(3, faults.clear)
    slow.start()
    results = finish_all([rank.process for rank in ranks], 30)
    assert [code for code, _, _ in results] == [0] * RANKS, results
    assert torch.load(tmp_path / "cifar_net.pth")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_at_the_start(training, tmp_path, number):
    """Nothing was trained, nothing is lost: the rank ends at once."""
    ranks = training("--max-steps", "2", "--no-eval", "--checkpoint-seconds", "1000")
    ranks[0].process.send_signal(signal.SIGSTOP)  # so that rank 1 waits for it
    reached(ranks[1], lambda: ranks[1].has_been_in("init"), "the start")
    ranks[1].process.send_signal(number)
    ranks[1].process.wait(timeout=20)
    ranks[0].process.kill()
    results = finish_all([rank.process for rank in ranks], 20)
    assert results[1][0] in (-number, 128 + number), results


def test_while_the_data_are_opened(tmp_path, faults):
    """From a disk that hangs: there is nothing to save yet."""
    data = tmp_path / "data"
    data.mkdir()
    make_cifar10(data)
    faults.set(f"open hang path={data}")
    words = ["--dataset", "cifar10", "--data-dir", data, "--output-dir", tmp_path, "--checkpoint-seconds", "9"]
    process = start([TRAIN, *words], env=clean_environment(**faults.env()))
    faults.wait_for_hit("open hang")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == -signal.SIGTERM
