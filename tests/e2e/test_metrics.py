# SPDX-License-Identifier: Apache-2.0
"""What a run leaves of its metrics: JSON lines, TensorBoard's event files, and with --profile a trace."""

import json
import math
import pathlib
import sys

import pytest

from conftest import BUILD, DDPRUN, TRAIN, clean_environment, run

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from faults import Faults  # noqa: E402

# 4096 images of 2 ranks in batches of 16 would be 128 steps an epoch.
SMALL = ["--dataset", "synthetic", "--batch-size", "16", "--max-steps", "16", "--log-every", "2", "--lr", "0.01"]
SECTIONS = {"data", "forward", "backward", "gradients", "optimizer", "other", "evaluation", "checkpoint"}


def train(folder, *arguments, ranks=2, **options):
    launch = [DDPRUN, "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    ended = run([*launch, TRAIN, *SMALL, "--output-dir", folder, *arguments], **options)
    assert ended.returncode == 0, ended.stderr
    return ended


def records(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def tensorboard_scalars(folder):
    """{name: [(step, value)]} as TensorBoard itself reads the folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder / "tensorboard"))
    accumulator.Reload()
    return {
        name: [(event.step, event.value) for event in accumulator.Scalars(name)]
        for name in accumulator.Tags()["scalars"]
    }


def test_tensorboard_reads_what_the_json_lines_say(tmp_path):
    train(tmp_path, "--eval-every", "0.0625", "--clip-norm", "1", "--tensorboard")
    lines = records(tmp_path)
    training = [line for line in lines if "loss/train" in line]
    assert [line["step"] for line in training] == [2, 4, 6, 8, 10, 12, 14, 16]
    assert {
        "learning_rate",
        "throughput/images_per_second",
        "time/data_wait",
        "time/gradient_wait",
        "grad_norm",
        "epoch",
    } <= training[0].keys()
    assert training[-1]["epoch"] == 16 / 128
    assert [line["step"] for line in lines if "accuracy/test" in line] == [8, 16]
    scalars = tensorboard_scalars(tmp_path)
    written = {name for line in lines for name in line if name not in ("step", "time")}
    assert written == scalars.keys()
    for name, points in scalars.items():
        expected = [(line["step"], line[name]) for line in lines if name in line]
        assert [step for step, _ in points] == [step for step, _ in expected]
        assert all(math.isclose(a, b, rel_tol=1e-6) for (_, a), (_, b) in zip(points, expected)), name


def run_piece(folder, steps_done, first, last, value):
    ended = run([BUILD / "tests" / "metrics_writer_probe", folder, steps_done, first, last, value])
    assert (ended.returncode, ended.stdout) == (0, ""), ended


def test_a_resumed_run_is_one_series_without_what_was_lost(tmp_path):
    run_piece(tmp_path, 0, 1, 50, 1.0)
    # Killed after step 50 and resumed from the checkpoint of step 30; and once more within the same second.
    run_piece(tmp_path, 30, 31, 40, 2.0)
    run_piece(tmp_path, 35, 36, 60, 3.0)
    expected = [(step, 1.0 if step <= 30 else 2.0 if step <= 35 else 3.0) for step in range(1, 61)]
    assert tensorboard_scalars(tmp_path)["loss/train"] == expected
    assert [(line["step"], line["loss/train"]) for line in records(tmp_path)] == expected


def test_training_that_goes_on_from_a_checkpoint_goes_on_in_its_metrics(tmp_path):
    more = ["--checkpoint-every", "4", "--tensorboard", "--no-eval"]
    train(tmp_path, *more, "--max-steps", "10")
    # One before the end: what was recorded behind it is made again.
    resumed = min((tmp_path / "checkpoints").glob("step-*8.safetensors"))
    first = {line["step"]: line["time"] for line in records(tmp_path) if "loss/train" in line}
    train(tmp_path, *more, "--resume", resumed)
    lines = [line for line in records(tmp_path) if "loss/train" in line]
    assert [line["step"] for line in lines] == [2, 4, 6, 8, 10, 12, 14, 16]
    assert [line["time"] == first.get(line["step"]) for line in lines] == [True] * 4 + [False] * 4
    losses = [(line["step"], pytest.approx(line["loss/train"], rel=1e-6)) for line in lines]
    assert tensorboard_scalars(tmp_path)["loss/train"] == losses


def test_another_run_in_the_same_folder_keeps_the_former_metrics(tmp_path):
    run_piece(tmp_path, 0, 1, 5, 1.0)
    run_piece(tmp_path, 0, 1, 3, 2.0)
    assert tensorboard_scalars(tmp_path)["loss/train"] == [(1, 2.0), (2, 2.0), (3, 2.0)]
    assert len(records(tmp_path)) == 3
    assert len((tmp_path / "metrics.previous.jsonl").read_text().splitlines()) == 5


def test_metrics_can_be_left_out(tmp_path):
    train(tmp_path, "--no-metrics", ranks=1)
    assert not (tmp_path / "metrics.jsonl").exists()
    assert not (tmp_path / "tensorboard").exists()


def test_a_full_disk_is_said_once_and_stops_nothing(tmp_path):
    faults = Faults(tmp_path)
    faults.set(f"write ENOSPC path={tmp_path.resolve()}/metrics.jsonl")
    ended = train(tmp_path, "--tensorboard", "--no-eval", ranks=1, env=clean_environment(**faults.env()))
    words = f"train: metrics cannot be written to {tmp_path}/metrics.jsonl: No space left on device; training goes on"
    assert ended.stderr.startswith(words) and ended.stderr.count("\n") == 1, ended.stderr
    assert (tmp_path / "cifar_net.pth").is_file()
    assert len(tensorboard_scalars(tmp_path)["loss/train"]) == 8, "the other file goes on"


def test_summary_says_how_long_was_waited(tmp_path):
    ended = train(tmp_path)
    for row in ("test accuracy", "a second)", "waited for data", "waited for gradients"):
        assert row in ended.stdout, ended.stdout
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["gradient_wait_seconds"] > 0 and summary["data_wait_seconds"] >= 0


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("profiled")
    ended = train(
        folder, "--profile", "--profile-first-step", "3", "--profile-steps", "4", "--no-eval"
    )
    return ended, json.loads((folder / "trace.json").read_text())


def slices(trace, rank):
    return [event for event in trace["traceEvents"] if event["ph"] == "X" and event["pid"] == rank]


def inside(outer, inner):
    # Times are microseconds with three digits; half of the last one is rounding.
    return outer["ts"] <= inner["ts"] + 5e-4 and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 5e-4


def test_trace_has_a_named_process_for_each_rank(profiled):
    _, trace = profiled
    names = {
        event["pid"]: event["args"]["name"] for event in trace["traceEvents"] if event.get("name") == "process_name"
    }
    assert names.keys() == {0, 1}
    assert all(name.startswith(f"rank {rank} (") for rank, name in names.items())
    for event in trace["traceEvents"]:
        assert event["ph"] in "MXbe" and isinstance(event["pid"], int) and isinstance(event["tid"], int), event
        assert event["ph"] == "M" or event["ts"] >= 0, event


def test_trace_shows_each_step_and_its_sections_one_after_the_other(profiled):
    _, trace = profiled
    for rank in (0, 1):
        track = [event for event in slices(trace, rank) if event["tid"] == 0]
        steps = [event for event in track if event["name"].startswith("step ")]
        assert [event["name"] for event in steps] == ["step 3", "step 4", "step 5", "step 6"]
        sections = [event for event in track if event not in steps]
        assert {event["name"] for event in sections} <= SECTIONS
        for step in steps:
            own = [event for event in sections if inside(step, event)]
            assert [event["name"] for event in own] == ["data", "forward", "backward", "gradients", "optimizer"]
            for before, after in zip(own, own[1:]):
                assert before["ts"] + before["dur"] <= after["ts"] + 2e-3
        for before, after in zip(steps, steps[1:]):
            assert before["ts"] + before["dur"] <= after["ts"]


def test_collectives_that_may_end_after_the_profile_are_not_recorded(profiled):
    """One that did wrote into the profiler's memory, which was gone: a rank in thirty runs died of it. (The gradients of ranks
    on one machine take none.)"""
    _, trace = profiled
    assert [event["name"] for event in trace["traceEvents"] if event["name"].startswith(("gloo:", "c10d::"))] == []


def test_operators_lie_within_their_sections_and_nest(profiled):
    _, trace = profiled
    for rank in (0, 1):
        events = slices(trace, rank)
        steps = [event for event in events if event["tid"] == 0 and event["name"].startswith("step ")]
        forward = [event for event in events if event["tid"] == 0 and event["name"] == "forward"]
        convolutions = [event for event in events if event["name"] == "aten::conv2d"]
        # Eleven layers in each step of the window, and none from elsewhere.
        assert len(convolutions) == 11 * len(steps)
        # The clocks of the two sources agree to better than this.
        assert all(
            any(f["ts"] - 100 <= c["ts"] and c["ts"] + c["dur"] <= f["ts"] + f["dur"] + 100 for f in forward)
            for c in convolutions
        )
        tracks = {}
        for event in events:
            tracks.setdefault(event["tid"], []).append(event)
        for track in tracks.values():
            open_slices = []
            for event in sorted(track, key=lambda e: (e["ts"], -e["dur"])):
                while open_slices and open_slices[-1]["ts"] + open_slices[-1]["dur"] <= event["ts"] + 5e-4:
                    open_slices.pop()
                assert not open_slices or inside(open_slices[-1], event), (open_slices[-1], event)
                open_slices.append(event)


def test_ranks_clocks_are_aligned(profiled):
    """A rank is through with the gradients of a step only after all have begun to compute them."""
    _, trace = profiled
    ends, begins = {}, {}
    for rank in (0, 1):
        track = [event for event in slices(trace, rank) if event["tid"] == 0]
        begins[rank] = [e["ts"] for e in track if e["name"] == "backward"]
        ends[rank] = [e["ts"] + e["dur"] for e in track if e["name"] == "gradients"]
    assert all(end > begin for end, begin in zip(ends[0], begins[1]))
    assert all(end > begin for end, begin in zip(ends[1], begins[0]))


def test_profile_ends_with_where_the_time_went(profiled):
    ended, _ = profiled
    assert "trace.json in https://ui.perfetto.dev" in ended.stdout
    table = ended.stdout[ended.stdout.index("ms a step") :]
    for section in ("data", "forward", "backward", "gradients", "optimizer"):
        assert f"\n[0] {section} " in table or f"\n{section} " in table, ended.stdout
    assert "(rank 1)" in table
