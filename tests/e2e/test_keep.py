# SPDX-License-Identifier: Apache-2.0
"""`train` goes on in place when other ranks die: the model is that of a run without faults, bit by bit."""

import itertools
import json
import re
import resource
import signal
import time
from pathlib import Path

import pytest
from conftest import TRAIN
from round_agent import RoundAgent

SETTINGS = """--dataset synthetic --samples 512 --batch-size 16 --epochs 100 --deterministic --eval-every 0.5 --log-every 5
    --augment""".split()
# So many steps that no kill comes after the last: the small model's are short.
STEPS = 60
LARGE = ["--model", "netresdeep", "--max-steps", str(STEPS)]
SMALL_STEPS = 400
SMALL = ["--model", "simple-cnn", "--max-steps", str(SMALL_STEPS)]
SECTIONS = ("init", "forward", "backward, all_reduce", "all_reduce", "evaluate", "checkpoint")
nightly = pytest.mark.nightly

# A file of this size holds the large model or a checkpoint (1.3 MB), but not the memory that the ranks share (1.6 MB).
SMALL_FILES = 1_450_000


def without_shared_memory(rank):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL_FILES, SMALL_FILES))


MEMORY = {"shared": None, "network": without_shared_memory}


def agent_of(folder, *more, memory="shared"):
    model = () if "--model" in more else SMALL if memory == "shared" else LARGE
    return RoundAgent(folder, [TRAIN, *SETTINGS, *model, "--output-dir", folder / "run", *more], MEMORY[memory])


def maps_shared_memory(worker):
    return "memfd:ddprun-gradients" in Path(f"/proc/{worker.process.pid}/maps").read_text()


def model_of(folder):
    return (folder / "run" / "cifar_net.pth").read_bytes()


def epochs_of(agent):
    """What rank 0, whichever process that was, has written of each epoch's training images."""
    lines = (line for worker in agent.all for line in worker.output.read_text().splitlines())
    return {found[1]: found[2] for found in (re.match(r"epoch (\d+)/\d+ (mean loss .*)", line) for line in lines) if found}


def assert_no_trace(agent, folder, undisturbed, deaths_of_rank_0=0):
    """A rank 0 that dies as an epoch ends takes at most the line about it with it."""
    model, epochs = undisturbed
    assert model_of(folder) == model
    written = epochs_of(agent)
    assert written.items() <= epochs.items()
    assert len(written) >= len(epochs) - deaths_of_rank_0


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Model and epochs of a run without faults."""
    runs = {}

    def get(ranks, *more, memory="shared"):
        key = (ranks, memory, *more)
        if key not in runs:
            folder = tmp_path_factory.mktemp("plain")
            with agent_of(folder, *more, memory=memory) as agent:
                agent.begin([None] * ranks)
                agent.finish()
            runs[key] = model_of(folder), epochs_of(agent)
        return runs[key]

    return get


def after_steps(agent, count):
    """So many steps from now on."""
    agent.until_step(1)
    agent.until_step(max(worker.step for worker in agent.workers) + count)
    assert not agent.ended(), agent.outputs()


@pytest.mark.parametrize(
    "ranks, memory",
    [(2, "shared"), (2, "network"), *(pytest.param(*both, marks=nightly) for both in ((3, "shared"), (3, "network"), (4, "shared"), (4, "network")))],
)
def test_killed_ranks_leave_no_trace(tmp_path, expected, chance, ranks, memory):
    with agent_of(tmp_path, *LARGE, memory=memory) as agent:
        agent.begin([None] * ranks)
        for victim in [0, *(chance.randrange(ranks) for _ in range(3))]:
            after_steps(agent, 2)
            moment = time.monotonic() + chance.uniform(0, 0.08)
            while time.monotonic() < moment:
                agent.look(0.001)
            survivors = [worker.process.pid for worker in agent.workers]
            agent.replace(victim)
            assert [w.process.pid for rank, w in enumerate(agent.workers) if rank != victim] == [
                pid for rank, pid in enumerate(survivors) if rank != victim
            ]
        agent.finish()
    assert_no_trace(agent, tmp_path, expected(ranks, *LARGE, memory=memory), deaths_of_rank_0=4)


@pytest.mark.parametrize("backend, devices", [("gloo", 1), ("nccl", 2)])
def test_killed_ranks_on_gpus_leave_no_trace(tmp_path, expected, backend, devices):
    shown = len(list(Path("/dev").glob("nvidia[0-9]*")))
    if shown < devices:
        pytest.skip(f"needs {devices} GPUs, and there are {shown}")
    on_gpus = ["--device", "cuda", "--backend", backend, "--model", "netresdeep", "--max-steps", "300"]
    with agent_of(tmp_path, *on_gpus) as agent:
        agent.begin([None] * 2)
        for victim in [0, 1, 0, 1]:
            after_steps(agent, 20)
            survivor = agent.workers[1 - victim].process.pid
            agent.replace(victim)
            assert agent.workers[1 - victim].process.pid == survivor
        agent.finish()
    assert_no_trace(agent, tmp_path, expected(2, *on_gpus), deaths_of_rank_0=2)


def test_killed_in_each_section_of_one_run(tmp_path, expected):
    """Rank 0 and rank 1 in turn: twelve deaths. Not every section is reported by both: each has so many steps to be seen."""
    steps = 60
    more = ["--checkpoint-every", "2", "--ema-decay", "0.9", "--model", "simple-cnn", "--max-steps", "800"]
    with agent_of(tmp_path, *more) as agent:
        agent.begin([None] * 2)
        for number, (section, victim) in enumerate(itertools.product(SECTIONS, (0, 1)), 1):
            worker = agent.workers[victim]
            there = lambda: worker.section == section or worker.step >= number * steps  # noqa: B023, E731
            agent.until(lambda: there() and agent.all_kept() or agent.ended(), f"section {section}")
            assert not agent.ended(), agent.outputs()
            agent.replace(victim)
        agent.finish()
    assert_no_trace(agent, tmp_path, expected(2, *more), deaths_of_rank_0=len(SECTIONS))


@nightly
@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("section", SECTIONS)
def test_killed_in_each_section(tmp_path, expected, section, victim):
    saving = ["--checkpoint-every", "2"]
    more = [*saving, "--ema-decay", "0.9", *LARGE]
    with agent_of(tmp_path, *more) as agent:
        agent.begin([None] * 2)
        worker = agent.workers[victim]
        # Not every section is reported: late steps will do.
        there = lambda: worker.section == section or worker.step >= STEPS - 5  # noqa: E731
        agent.until(lambda: there() and agent.all_kept(), f"section {section}")
        agent.replace(victim)
        agent.finish()
    assert_no_trace(agent, tmp_path, expected(2, *more), deaths_of_rank_0=1 - victim)


def test_a_round_that_breaks_without_a_death_sends_nothing(tmp_path, expected):
    """Unless it breaks while one rank has completed a step that another has not."""
    breaks = 0
    with agent_of(tmp_path) as agent:
        agent.begin([None] * 3)
        output = agent.all[0].output.read_text
        # On a busy machine the steps may run out before eight breaks are made: a round that ends after the last goes nowhere.
        while breaks < 8 and max(worker.step for worker in agent.workers) < SMALL_STEPS - 100:
            after_steps(agent, 1)
            agent.begin(agent.break_round())
            breaks += 1
            # Reports of steps may be late: those of the round before say nothing of this one.
            agent.until(lambda: agent.ended() or output().count("goes on after step") == breaks, "the round to begin")  # noqa: B023
        agent.finish()
    assert breaks > 2
    assert len(agent.all) == 3
    assert output().count("goes on after step") == breaks, output()
    assert output().count("the state is") < breaks
    assert_no_trace(agent, tmp_path, expected(3))


def test_a_survivor_leaves_by_itself(tmp_path, expected):
    """The agent has not heard of the death yet. The training accumulates, in mixed precision."""
    more = ["--accumulate", "2", "--amp", "bf16", "--model", "simple-cnn", "--max-steps", "100"]
    with agent_of(tmp_path, *more) as agent:
        agent.begin([None] * 2)
        after_steps(agent, 2)
        agent.workers[1].kill()
        agent.begin(agent.break_round(tell=False))
        assert agent.workers[0].error
        agent.finish()
    assert_no_trace(agent, tmp_path, expected(2, *more))


def test_two_die_one_after_the_other(tmp_path, expected):
    """The second one while the world of the next round is being made. Gradients are sent in 16 bits."""
    more = ["--compress", "bf16", "--model", "simple-cnn", "--max-steps", "200"]
    with agent_of(tmp_path, *more) as agent:
        agent.begin([None] * 3)
        after_steps(agent, 2)
        agent.replace(2)
        agent.replace(1)
        agent.replace(0)
        agent.finish()
    assert_no_trace(agent, tmp_path, expected(3, *more), deaths_of_rank_0=1)


@pytest.mark.parametrize(
    "ranks, memory", [(2, "shared"), *(pytest.param(*both, marks=nightly) for both in ((3, "shared"), (2, "network"), (3, "network")))]
)
def test_all_states_are_lost_with_all_ranks_that_had_one(tmp_path, expected, ranks, memory):
    """What is left is the newest checkpoint."""
    saving = ["--checkpoint-every", "5"]
    with agent_of(tmp_path, *saving, memory=memory) as agent:
        agent.begin([None] * ranks)
        agent.until_step(12)
        assert not agent.ended(), agent.outputs()
        assert [maps_shared_memory(worker) for worker in agent.workers] == [memory == "shared"] * ranks
        for worker in agent.workers:
            worker.kill()
        agent.begin(agent.break_round())
        agent.finish()
        assert "goes on from" in agent.workers[0].output.read_text(), agent.outputs()
    assert model_of(tmp_path) == expected(ranks, *saving, memory=memory)[0]


@nightly
def test_a_round_that_breaks_as_the_checkpoint_is_read_leaves_no_trace(tmp_path, expected):
    """Also where the first step after it is never completed."""
    saving = ["--checkpoint-every", "5"]
    with agent_of(tmp_path, *saving, memory="network") as agent:
        agent.begin([None] * 3)
        agent.until_step(12)
        for worker in agent.workers:
            worker.kill()
        agent.begin(agent.break_round())
        first = agent.workers[0]
        agent.until(lambda: agent.ended() or "goes on from" in first.output.read_text(), "the checkpoint to be read")
        agent.begin(agent.break_round())
        agent.finish()
        assert first.output.read_text().count("goes on ") > 1, agent.outputs()
    assert model_of(tmp_path) == expected(3, *saving, memory="network")[0]


def test_every_sample_once_while_the_world_grows_and_shrinks(tmp_path):
    with agent_of(tmp_path, "--model", "netresdeep", "--log-samples", "--batch-size", "8", "--max-steps", "1000", "--epochs", "2") as agent:
        agent.begin([None] * 2)
        after_steps(agent, 3)
        agent.begin([*agent.break_round(), None])
        after_steps(agent, 3)
        left = agent.break_round()
        left.pop().kill()
        agent.begin(left)
        agent.finish()
    seen = {}
    for path in (tmp_path / "run").glob("samples-*.jsonl"):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            seen.setdefault(record["epoch"], []).extend(record["images"])
    assert {epoch: sorted(images) for epoch, images in seen.items()} == {1: list(range(512)), 2: list(range(512))}


def test_a_parked_worker_takes_the_place_of_a_dead_one(tmp_path, expected):
    with agent_of(tmp_path) as agent:
        spare = agent.park()
        agent.begin([None] * 2)
        after_steps(agent, 2)
        agent.workers[0].kill()
        agent.begin([spare, agent.break_round()[1]])
        agent.finish()
    assert_no_trace(agent, tmp_path, expected(2), deaths_of_rank_0=1)


def test_a_parked_worker_ends_at_once_when_told_to(tmp_path):
    with agent_of(tmp_path) as agent:
        spare = agent.park()
        spare.kill(signal.SIGTERM)
        assert spare.process.returncode in (-signal.SIGTERM, 128 + signal.SIGTERM)


def test_a_signal_ends_a_worker_that_waits_for_a_round(tmp_path):
    """All ranks may be told to end while their round ends: rank 0 saves what they have made."""
    with agent_of(tmp_path, "--checkpoint-every", "1000") as agent:
        agent.begin([None] * 2)
        after_steps(agent, 2)
        agent.break_round()
        for worker in agent.workers:
            worker.kill(signal.SIGTERM)
            assert worker.process.returncode == 128 + signal.SIGTERM
        (saved,) = (tmp_path / "run" / "checkpoints").glob("step-*.safetensors")
        first, second = (worker.output.read_text() for worker in agent.workers)
        step = int(re.search(r"ended by SIGTERM after step (\d+); .* holds it", first).group(1))
        assert step >= 2 and int(saved.stem[5:]) == step
        assert "ended by SIGTERM while it waited for a new round" in second


def test_a_loss_that_is_not_finite_ends_the_process(tmp_path):
    with agent_of(tmp_path, "--lr", "1e30") as agent:
        agent.begin([None] * 2)
        agent.until(agent.ended, "the first rank to fail")
        assert "the loss is" in agent.outputs()
