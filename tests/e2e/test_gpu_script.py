# SPDX-License-Identifier: Apache-2.0
"""tests/gpu/run.sh where there is no GPU: what it prints, what it skips and why, and how it judges figures."""

import contextlib
import ctypes
import json
import os
import re
import signal
import sys

import pytest
from bundles import TORCH, bare_environment, bundle, tarball, unpacked  # noqa: F401  (fixtures)
from conftest import BUILD, REPO, processes_of_this_session, run, start, torch_minor, wait_for

GPU = REPO / "tests" / "gpu"
sys.path.insert(0, str(GPU))
import gpu_checks  # noqa: E402
import judging  # noqa: E402
import report  # noqa: E402
import speed_checks  # noqa: E402
import training_checks  # noqa: E402
from workbench import Workbench  # noqa: E402

EXPECTATIONS = json.loads((GPU / "expectations.json").read_text())


def has_gpu():
    with contextlib.suppress(OSError):
        driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
        return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0
    return False


def environment(**more):
    """python3 is the one with torch."""
    return bare_environment(PATH=f"{os.path.dirname(sys.executable)}:/usr/bin:/bin", **more)


def script(folder, *flags, env=None, timeout=280):
    done = run([folder / "tests" / "gpu" / "run.sh", *flags], env=env or environment(), timeout=timeout)
    return done, json.loads(done.stdout) if done.stdout.startswith("{") else None


def names(folder):
    return run([folder / "tests" / "gpu" / "run.sh", "--list"], env=environment()).stdout.split()


def assert_all_skipped(told, words):
    assert told["checks"]
    for name, check in told["checks"].items():
        assert check["status"] == "skipped" and re.search(words, check["reason"]), (name, check)
        assert f"{name}: {check['reason']}" in told["skipped"]
    for expectation in told["expectations"]:
        assert expectation["status"] == "not yet measured" and expectation["reason"], expectation


# ---- Without a GPU -------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(has_gpu(), reason="this machine has a GPU")
def test_without_a_gpu_each_check_is_skipped_with_the_reason(bundle):  # noqa: F811
    done, told = script(bundle)
    assert done.returncode == 0, done.stderr
    assert list(told["checks"]) == names(bundle)
    assert_all_skipped(told, "no GPU|is for CUDA None")
    assert len(told["expectations"]) == len(EXPECTATIONS)
    for expectation in told["expectations"]:
        for key in ("name", "command", "target", "compare", "unit", "how"):
            assert expectation[key] not in (None, ""), expectation
    assert told["machine"]["torch"]["version"].startswith(f"{torch_minor()}.") and told["bundle"]["torch"] == torch_minor()
    assert told["machine"]["gpus"] == [] and told["machine"]["devices"] == 0
    for name in told["checks"]:
        assert f"skipped {name}: " in done.stderr


def test_without_torch_that_is_the_reason(bundle):  # noqa: F811
    done, told = script(bundle, env=bare_environment())
    assert done.returncode == 0, done.stderr
    assert_all_skipped(told, "has no torch; give --torch")


def test_the_torch_folder_names_the_python(bundle, tarball):  # noqa: F811
    done, told = script(REPO, "--bundle", tarball, "--torch", TORCH, "--only", "gpu_test", env=bare_environment())
    assert done.returncode == 0, done.stderr
    assert told["machine"]["torch"]["folder"] == str(TORCH) and list(told["checks"]) == ["gpu_test"]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--only", "all"], "there is no check all"),
        (["--minutes", "0.01"], "--minutes must be more than"),
        (["--torch", "/usr"], "--torch /usr is not the folder of a torch package"),
        (["--bundle", "/usr"], "has no bundle.json"),
        (["--bundle", "/nowhere"], "cannot be unpacked"),
        (["--colour"], "--colour"),
        (["--part", "1"], "--part"),
        (["--output", "/proc/1/here"], "--output /proc/1/here: "),
        (["--merge", "/usr/bin"], "--merge /usr/bin: there is no document of tests/gpu/run.sh"),
    ],
)
def test_bad_arguments(bundle, flags, says):  # noqa: F811
    done, told = script(bundle, *flags)
    assert done.returncode == 2 and told is None and says in done.stderr, done


# ---- The order of the checks ----------------------------------------------------------------------------------------------


def test_what_is_asked_for_first_fits_into_twelve_minutes():
    checks = [check.name for check in gpu_checks.CHECKS]
    correctness, headline = checks.index("killed_rank") + 1, checks.index("augmentation") + 1
    seconds = [check.seconds for check in gpu_checks.CHECKS]
    assert checks[:correctness] == ["gpu_test", "nccl_world_of_one", "graph_equals_eager", "kernels_equal_operations", "equals_python",
                                    "two_ranks_one_gpu", "killed_rank"]
    assert sum(seconds[:correctness]) <= 200 and sum(seconds[correctness:headline]) <= 300
    assert sum(seconds[: checks.index("step_profile") + 1]) <= 60 * gpu_checks.MINUTES and gpu_checks.MINUTES == 12
    for check in gpu_checks.CHECKS:
        assert check.least <= check.seconds / 2 or check.least <= 10, check


@pytest.mark.skipif(has_gpu(), reason="this machine has a GPU")
def test_documents_are_merged(bundle, tmp_path):  # noqa: F811
    output = tmp_path / "gpu"
    for name in ("gpu_test", "speedrun"):
        done, told = script(bundle, "--only", name, "--output", output)
        assert done.returncode == 0, done.stderr
        assert json.loads((output / f"{name}.json").read_text())["checks"] == told["checks"]
    done, told = script(bundle, "--merge", output)
    assert done.returncode == 0, done.stderr
    assert set(told["checks"]) == {"gpu_test", "speedrun"} and len(told["expectations"]) == len(EXPECTATIONS)
    assert_all_skipped(told, "no GPU|is for CUDA None|was not asked for")
    assert {part["file"] for part in told["parts"]} == {"gpu_test.json", "speedrun.json"}
    assert len(re.findall(r"^gpu checks: not yet measured: ", done.stderr, re.MULTILINE)) == len(EXPECTATIONS)
    table = run([bundle / "tests" / "gpu" / "run.sh", "--merge", output, "--table"], env=environment()).stdout
    assert len(re.findall(r"^\| .* \| not yet measured \|  \|$", table, re.MULTILINE)) == len(EXPECTATIONS)


def test_the_results_table_is_made_of_what_was_measured():
    table = report.table(report.recorded())
    assert table in (REPO / "tests" / "bench" / "RESULTS.md").read_text()
    assert len(table.splitlines()) == 2 + len(EXPECTATIONS)


def test_a_killed_part_leaves_what_was_done(bundle, tmp_path):  # noqa: F811
    flags = ["--rehearse", "--only", "nccl_world_of_one,two_ranks_one_gpu,resnet18_speed", "--output", tmp_path]
    process = start([bundle / "tests" / "gpu" / "run.sh", *flags], env=environment(), start_new_session=True)
    said = ""
    while "resnet18_speed ..." not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    (left,) = tmp_path.glob("*.json")
    told = json.loads(left.read_text())
    assert [check["status"] for check in told["checks"].values()] == ["passed", "passed", "skipped"]
    assert told["checks"]["resnet18_speed"]["reason"] == "it was not reached"
    for pid, _ in processes_of_this_session():  # what SIGKILL has left behind
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    wait_for("the end of all it had started", lambda: not processes_of_this_session())


def a_document(time, checks, gpu="NVIDIA H200"):
    told = report.document(False, False, {"gpus": [{"name": gpu}]}, {"commit": "abc"}, checks)
    return {**told, "time": time}


SKIPPED = {"status": "skipped", "reason": "it was not reached"}
SPEED = {"status": "passed", "missing": {}, "figures": {"batch_512": {"batch": 512, "graph": 81_000.0}}}


def test_merging_takes_the_newest_result_that_says_most(tmp_path):
    cut = {**SKIPPED, "figures": {"batch_512": {"batch": 512, "graph": 70_000.0}}}
    for name, told in {
        "b": a_document("2026-01-02", {"resnet18_speed": SKIPPED, "speedrun": SPEED | {"figures": {"command_of_python": 0.5}}}),
        "a": a_document("2026-01-01", {"resnet18_speed": SPEED, "speedrun": {"status": "failed", "reason": "it broke"}}),
        "c": a_document("2026-01-03", {"resnet18_speed": cut, "save_stall": SKIPPED}),
    }.items():
        report.write(tmp_path / f"{name}.json", told)
    (tmp_path / "other.json").write_text("[]")
    told = report.merge(report.read_all(tmp_path))
    assert told["checks"] == {"resnet18_speed": SPEED, "speedrun": SPEED | {"figures": {"command_of_python": 0.5}},
                              "save_stall": SKIPPED}
    status = {one["name"]: one["status"] for one in told["expectations"]}
    assert status["images a second of ResNet-18 with 512 images"] == "met" and status["command to the recipe's accuracy"] == "met"
    assert status["a save holds training up"] == "not yet measured"
    report.write(tmp_path / "d.json", a_document("2026-01-04", {}, gpu="NVIDIA T4"))
    with pytest.raises(ValueError, match="different GPUs .NVIDIA H200, NVIDIA T4."):
        report.merge(report.read_all(tmp_path))


def test_a_document_replaces_the_one_before_as_a_whole(tmp_path):
    for number in range(3):
        report.write(tmp_path / "part-1.json", {"number": number})
        assert json.loads((tmp_path / "part-1.json").read_text()) == {"number": number}
    assert [path.name for path in tmp_path.iterdir()] == ["part-1.json"]


def bench_of(tmp_path):
    return Workbench(tmp_path, TORCH, "cuda", False, None, tmp_path)


def test_a_check_that_ends_early_keeps_its_figures(tmp_path):
    kept = []

    def breaks(bench):
        bench.figures["first"] = 1
        bench.keep()
        bench.figures["second"] = 2
        raise speed_checks.Expired("it was not done in time")

    result = gpu_checks.make(gpu_checks.Check(breaks, 5, 1), bench_of(tmp_path), float("inf"), lambda one: kept.append(json.dumps(one)))
    assert [json.loads(one)["figures"] for one in kept] == [{"first": 1}]
    assert result["figures"] == {"first": 1, "second": 2} and "not done in time" in result["reason"]


def test_a_check_takes_what_those_before_it_have_left(tmp_path):
    left = []

    def first(bench):
        left.append(bench.left())

    def second(bench):
        left.append(bench.left())

    checks = [gpu_checks.Check(first, 100, 1), gpu_checks.Check(second, 50, 1)]
    results = {}
    gpu_checks.make_all(checks, bench_of(tmp_path), float("inf"), results, lambda: None)
    assert [round(seconds) for seconds in left] == [100, 150] and set(results) == {"first", "second"}


def test_epochs_are_of_whole_batches(tmp_path, monkeypatch):
    """A partial batch makes cuDNN look for kernels again, within what is measured."""
    seen = []

    @contextlib.contextmanager
    def train(self, *flags, **_):
        words = list(map(str, flags))
        seen.append((int(words[words.index("--samples") + 1]), int(words[words.index("--batch-size") + 1])))
        yield tmp_path

    monkeypatch.setattr(Workbench, "train", train)
    monkeypatch.setattr(speed_checks, "speed_of", lambda *_: 1.0)
    monkeypatch.setattr(speed_checks, "windows", lambda _: [{"step": 20 * i, "time": 0.1 * i} for i in range(13)])
    bench = bench_of(tmp_path)
    bench.deadline = float("inf")
    bench.run_well = lambda *_: '{"stall_ms": 1.0}'
    for model, batches in {"resnet18": speed_checks.RESNET_BATCHES, "netresdeep": [speed_checks.NETRESDEEP_BATCH]}.items():
        for batch in batches:
            speed_checks.train_speed(bench, model, batch, graph=False)
    bench.can_graph = lambda: False
    speed_checks.save_stall(bench)
    assert len(seen) == len(speed_checks.RESNET_BATCHES) + 2
    assert all(samples % batch == 0 and samples >= 4 * batch for samples, batch in seen), seen


class PeerOfPaper:
    """What speed_checks asks of a Peer."""

    def __init__(self, *_):
        pass

    @staticmethod
    def ready_made(*_):
        return PeerOfPaper()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def wait_until_ready(self):
        pass

    def seconds_for(self, steps):
        return steps / 10


RUN_OF_RECIPE = {"accuracy": 94.1, "training": 1.5, "evaluation": 0.1, "timer": 1.6, "command": 9.0}
OUTPUT_OF_GPU_TEST = """[  PASSED  ] 20 tests.
[  SKIPPED ] 1 test, listed below:
batch 128 microseconds 40.00 without kernels 90.00
cifar_net.pth: equal: max difference 1e-05 (in fc.weight; of parameters 2e-06) after 20 steps
"""


def bench_of_paper(tmp_path, monkeypatch):
    """A workbench with a GPU on which each program ends at once, with figures."""

    class BenchOfPaper(Workbench):
        def run(self, command, more_environment=None):
            words = list(map(str, command))
            if "--json" in words:
                told = {"ratios": [4.0], "seconds": {"ddprun": [2.0], "torchrun": [8.0]},
                        "seen": {"train": [RUN_OF_RECIPE] * 3, "PyTorch": [RUN_OF_RECIPE] * 3}}
                open(words[words.index("--json") + 1], "w").write(json.dumps(told))
            return 0, '{"stall_ms": 1.0}' if "checkpoint_cost.py" in " ".join(words) else OUTPUT_OF_GPU_TEST, ""

        def knows(self, setting):
            return True

        @contextlib.contextmanager
        def train(self, *flags, ranks=1, graph=False, backend="nccl"):
            words = list(map(str, flags))
            every = int(words[words.index("--log-every") + 1]) if "--log-every" in words else 1
            steps = int(words[words.index("--max-steps") + 1]) if "--max-steps" in words else 1
            folder = tmp_path / "train"
            folder.mkdir(exist_ok=True)
            lines = [{"step": step, "time": 100 + step / 10, "loss/train": 1 / step} for step in range(every, steps + 1, every)]
            (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
            told = {"backend": backend, "world_size": ranks, "test_accuracy": 0.9, "steps": steps,
                    "training_seconds": 1.0, "total_seconds": 2.0}
            (folder / "summary.json").write_text(json.dumps(told))
            (folder / "cifar_net.pth").touch()
            tracks = [{"ph": "M", "tid": 100_000, "name": "thread_name", "args": {"name": "GPU 0 stream 7"}}]
            slices = [{"ph": "X", "tid": track, "name": "norm_apply_bf16", "dur": 10.0} for track in (100_000, 100_000, 0)]
            (folder / "trace.json").write_text(json.dumps({"traceEvents": tracks + slices}))
            yield folder

    def killed(bench, folder, flags):
        (folder / "cifar_net.pth").touch()
        return "goes on after step 60 with 2 ranks; the state is rank 0's"

    monkeypatch.setattr(training_checks, "train_with_a_kill", killed)
    monkeypatch.setattr(speed_checks, "Peer", PeerOfPaper)
    bundle = tmp_path / "paper"  # not `bundle`: the fixture of that name
    (bundle / "libexec" / f"torch-{torch_minor()}").mkdir(parents=True)
    (bundle / "libexec" / f"torch-{torch_minor()}" / "gpu_test").touch()
    for place in ("data/cifar10/cifar-10-batches-bin/data_batch_1.bin", "data/fashion-mnist/train-images-idx3-ubyte.gz"):
        (bundle / place).parent.mkdir(parents=True)
        (bundle / place).touch()
    return BenchOfPaper(bundle, TORCH, "cuda", False, None, tmp_path)


def test_where_all_goes_well_each_expectation_has_its_figure(tmp_path, monkeypatch):
    """A mistake of the script must not show first on a machine that is lent by the minute."""
    results = {}
    gpu_checks.make_all(gpu_checks.CHECKS, bench_of_paper(tmp_path, monkeypatch), float("inf"), results, lambda: None)
    assert {name: (one["status"], one.get("reason")) for name, one in results.items()} == {
        check.name: ("passed", None) for check in gpu_checks.CHECKS}
    for one in judging.judge_all(EXPECTATIONS, results, "NVIDIA H200"):
        assert one["status"] in ("met", "missed"), one
    speed = results["resnet18_speed"]["figures"]
    assert "eager_step" in speed["batch_128"] and "eager_step" not in speed["batch_512"]
    profile = results["step_profile"]["figures"]
    assert profile["dearest"] == [[2.0, 0.2, "norm_apply_bf16"]] and profile["busy_us_a_step"] == 2.0  # 10 steps
    assert results["resnet18_compiled"]["figures"]["batch"] == speed_checks.COMPILED_BATCH


# ---- A rehearsal on the CPU ----------------------------------------------------------------------------------------------

# Not: what needs a compiler for torch.compile, or minutes of a CPU.
REHEARSED_IN_CI = ["two_ranks_one_gpu", "killed_rank", "netresdeep_speed"]
REHEARSED = [*REHEARSED_IN_CI, "nccl_world_of_one", "resnet18_speed", "first_step", "augmentation", "save_stall"]


@pytest.mark.parametrize("rehearsed", [REHEARSED_IN_CI, pytest.param(REHEARSED, marks=pytest.mark.nightly)], ids=["some", "all"])
def test_the_checks_run_and_leave_their_figures(bundle, rehearsed):  # noqa: F811
    """With a few steps on the CPU; the figures mean nothing and are not judged."""
    done, told = script(bundle, "--rehearse", "--minutes", "4.5", "--only", ",".join(["graph_equals_eager", "gpu_test", *rehearsed]))
    assert done.returncode == 0, done.stderr
    checks = told["checks"]
    assert {name: checks[name]["status"] for name in rehearsed} == dict.fromkeys(rehearsed, "passed"), done.stderr
    assert checks["graph_equals_eager"]["status"] == "skipped" and "GPU" in checks["graph_equals_eager"]["reason"]
    seen = {name: check.get("rehearsed") for name, check in checks.items()}
    if (BUILD / "tests" / "gpu_test").exists():
        assert checks["gpu_test"]["status"] == "passed" and seen["gpu_test"]["failed"] == 0
        assert has_gpu() or "gpu_test, Accelerator.AWorldOfOneReducesToItself: needs 1 GPU, and the driver shows none" in told["skipped"]
    else:  # built without CUDA
        assert "has no gpu_test" in checks["gpu_test"]["reason"]
    assert seen["two_ranks_one_gpu"]["world_size"] == 2
    assert seen["killed_rank"]["kept_and_equal"] == 1, seen["killed_rank"]
    for name in ("resnet18_speed", "netresdeep_speed"):
        if name in rehearsed:
            assert seen[name]["best"]["eager_step"] > 0 and seen[name]["best"]["python_eager"] > 0
            assert "needs a GPU" in checks[name]["missing"]["over_eager"]
            assert f"{name}, over_eager: a CUDA graph needs a GPU" in told["skipped"]
    assert {one["status"] for one in told["expectations"]} == {"not yet measured"}
    if rehearsed is REHEARSED:
        assert seen["first_step"]["train_s"] > 0 and seen["first_step"]["python_s"] > 0
        assert isinstance(seen["augmentation"]["share"], float) and isinstance(seen["save_stall"]["stall_ms"], float)
        assert seen["save_stall"]["python_stall_ms"] > 0


def test_what_the_limit_leaves_out_is_said(bundle):  # noqa: F811
    done, told = script(bundle, "--rehearse", "--minutes", "0.1")
    assert done.returncode == 0, done.stderr
    assert_all_skipped(told, "of the limit were left")


def test_sigterm_still_prints_what_is_known(bundle):  # noqa: F811
    flags = ["--rehearse", "--only", "gpu_test,nccl_world_of_one,resnet18_speed"]
    process = start([bundle / "tests" / "gpu" / "run.sh", *flags], env=environment())
    said = ""
    while "resnet18_speed ..." not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    told = json.loads(out)
    assert process.returncode == 0, said + err
    assert told["checks"]["nccl_world_of_one"]["status"] == "passed"
    assert told["checks"]["resnet18_speed"].items() >= {"status": "skipped", "reason": "ended by SIGTERM"}.items()
    wait_for("the end of all it had started", lambda: not processes_of_this_session())


def test_a_test_that_fails_is_told_by_name_and_by_the_exit_code(bundle):  # noqa: F811
    program = bundle / "libexec" / f"torch-{torch_minor()}" / "gpu_test"
    program.unlink(missing_ok=True)
    program.write_text("#!/bin/sh\necho '[  FAILED  ] Accelerator.Works (3 ms)'\nexit 1\n")
    program.chmod(0o755)
    done, told = script(bundle, "--rehearse", "--only", "gpu_test")
    assert done.returncode == 1
    assert told["checks"]["gpu_test"]["status"] == "failed"
    assert "Accelerator.Works" in told["checks"]["gpu_test"]["reason"]


# ---- Judging -------------------------------------------------------------------------------------------------------------


def expectation(name):
    (found,) = [one for one in EXPECTATIONS if one["name"] == name]
    return found


def checked(check, figure, value):
    """Results with that figure alone, given as `a.b`."""
    figures = value
    for part in reversed(figure.split(".")):
        figures = {part: figures}
    return {check: {"status": "passed", "figures": figures}}


@pytest.mark.parametrize("one", EXPECTATIONS, ids=lambda one: one["name"])
def test_each_expectation_is_met_and_missed_by_its_figure(one):
    better, worse = (one["target"] + 1e-9, one["target"] - 1e-6) if one["compare"] == ">=" else (one["target"], one["target"] + 1e-6)
    for value, status in ((better, "met"), (worse, "missed")):
        results = checked(one["check"], one["figure"], value)
        judged = judging.judge(one, results, "NVIDIA H200")
        assert (judged["status"], judged["measured"]) == (status, value)
        assert judged["command"] == f"tests/gpu/run.sh --only {one['check']}"
        assert judging.exit_code(results, [judged]) == (1 if one["hard"] and status == "missed" else 0)


def test_the_expectations_are_of_checks_that_there_are(bundle):  # noqa: F811
    assert {one["check"] for one in EXPECTATIONS} <= set(names(bundle))
    assert len({one["name"] for one in EXPECTATIONS}) == len(EXPECTATIONS)
    assert {one["status"] for one in EXPECTATIONS} == {"not yet measured"}
    shown = {(one["check"], one["figure"], one["compare"], one["target"], one.get("device")) for one in EXPECTATIONS}
    assert shown >= {
        ("resnet18_speed", "batch_512.graph", ">=", 80_000, "NVIDIA H"),
        ("resnet18_speed", "batch_128.graph", ">=", 65_000, "NVIDIA H"),
        ("resnet18_speed", "batch_128.over_eager", ">=", 2.0, None),
        ("resnet18_compiled", "over_compiled", ">=", 1.0, None),
        ("speedrun", "cifar10_accuracy", ">=", 0.94, None),
        ("speedrun", "cifar10_timer_s", "<=", 2.0, "H200"),
        ("speedrun", "command_of_python", "<=", 0.6, None),
        ("speedrun_compiled", "training_of_python", "<=", 1.0, None),
        ("augmentation", "share", "<=", 0.03, None),
        ("save_stall", "stall_ms", "<=", 10, None),
    }


def test_a_target_for_one_kind_of_gpu_is_judged_on_that_alone():
    one = expectation("images a second of ResNet-18 with 512 images")
    results = checked(one["check"], one["figure"], 20_000)
    assert judging.judge(one, results, "NVIDIA H200")["status"] == "missed"
    judged = judging.judge(one, results, "NVIDIA T4")
    assert judged["status"] == "not yet measured" and judged["measured"] == 20_000 and "T4" in judged["reason"]


def test_a_figure_that_is_not_there_has_the_reason():
    one = expectation("ResNet-18 beside PyTorch eager at batch 128")
    reasons = {
        "the check resnet18_speed was not asked for": {},
        "no GPU": {"resnet18_speed": {"status": "skipped", "reason": "no GPU"}},
        "the check resnet18_speed failed: it broke": {"resnet18_speed": {"status": "failed", "reason": "it broke", "figures": {}}},
        "no --cuda-graph": {"resnet18_speed": {"status": "passed", "figures": {"batch_128": {"eager_step": 3}},
                                               "missing": {"over_eager": "no --cuda-graph"}}},
    }
    for reason, results in reasons.items():
        judged = judging.judge(one, results, "NVIDIA H200")
        assert judged["status"] == "not yet measured" and judged["reason"] == reason, judged
        assert judging.exit_code(results, [judged]) == (1 if "failed" in reason else 0)


def test_figures_of_a_check_that_was_cut_short_still_count():
    one = expectation("the graph step of the eager step at batch 128")
    results = {one["check"]: {"status": "skipped", "reason": "its time was up", "figures": {"batch_128": {"graph_step_of_eager_step": 0.6}}}}
    assert judging.judge(one, results, None)["status"] == "met"
