# SPDX-License-Identifier: Apache-2.0
"""How fast train is on a GPU, beside Python in the same run. Each check takes the Workbench and leaves figures there.

Programs are measured in turn, repeat by repeat; figures are medians, and what counts is the median of the ratios of what
followed each other. train is started anew for each of its measurements, and its figure is that of the steps after the
first window, by the times in metrics.jsonl. The Python peers stay and are asked for windows of as many steps.
"""

import contextlib
import json
import re
import statistics
import sys

from training_checks import cifar10_folder, fashion_mnist_folder, made_up
from workbench import BENCH, Expired, Failure, Peer, Skip, windows

# About how many images a window should have: a third of a second at the speed aimed at.
WINDOW_IMAGES = {"resnet18": 25_000, "netresdeep": 60_000, "resnet50": 1_024}
MEASURED_WINDOWS = 4
# At most, in whole batches: cuDNN looks for the fastest kernels of each size that it meets.
IMAGES = {"resnet18": 50_000, "netresdeep": 50_000, "resnet50": 4_096}
RESNET_BATCHES = (128, 512)
COMPILED_BATCH = 128
RESNET50 = {"batch": 256, "size": 224}
NETRESDEEP_BATCH = 64
AUGMENTED_BATCH = 128  # the smallest: the steps of greater ones are longer by more
LEAST_S = 25  # of a check's time must be left for another batch


def half_precision(bench):
    return ["--amp", "off" if bench.rehearsal else "bf16", "--channels-last"]


def steps_of_window(bench, model, batch):
    return 1 if bench.rehearsal else max(8, WINDOW_IMAGES[model] // batch)


def repeats_of(bench):
    return 1 if bench.rehearsal else 2 if bench.quick else 3


def batch_of(bench, batch):
    return 2 if bench.rehearsal else batch


def speed_of(folder, batch):
    """Images a second from the first line to the last."""
    lines = windows(folder)
    if len(lines) < 3:
        raise Failure(f"{folder}/metrics.jsonl has {len(lines)} lines of training and not the 3 that a measurement takes")
    return (lines[-1]["step"] - lines[0]["step"]) * batch / (lines[-1]["time"] - lines[0]["time"])


def train_speed(bench, model, batch, graph, *flags):
    every = steps_of_window(bench, model, batch)
    images = 64 if bench.rehearsal else IMAGES[model]
    work = made_up(bench, (1 + MEASURED_WINDOWS) * every, every, batch)
    work[work.index("--samples") + 1] = images // batch * batch
    with bench.train("--model", model, "--augment", *half_precision(bench), *work, *flags, graph=graph) as folder:
        return speed_of(folder, batch)


def peer_flags_of(bench, model, batch, *flags):
    return ["--model", model, "--batch-size", batch, *half_precision(bench), *flags]


def peer_of(bench, model, batch, *flags):
    return Peer.ready_made(bench, *peer_flags_of(bench, model, batch, *flags))


def compile_mode(bench):
    return ["--compile", "default" if bench.rehearsal else "max-autotune"]


def start_peers(bench, names):
    """The peers of these checks that take long to be ready: a minute and more where they compile."""
    ahead = {"resnet18_compiled": [(COMPILED_BATCH, *compile_mode(bench))], "resnet18_speed": [(batch,) for batch in RESNET_BATCHES]}
    for name, peers in ahead.items():
        for batch, *flags in peers if name in names else []:
            Peer.start_ahead(bench, *peer_flags_of(bench, "resnet18", batch, *flags))


def peer_speed(bench, peer, model, batch):
    steps = MEASURED_WINDOWS * steps_of_window(bench, model, batch)
    return steps * batch / peer.seconds_for(steps)


def median_ratio(above, below):
    return statistics.median(a / b for a, b in zip(above, below))


def in_turn(programs, repeats, once=()):
    """{name: [figure of each repeat]} of {name: function}; those named in `once` have one."""
    seen = {name: [] for name in programs}
    for repeat in range(repeats):
        for name, measure in programs.items():
            if repeat == 0 or name not in once:
                seen[name].append(measure())
    return seen


def beside_eager(bench, model, batch, without_graph, train_flags=(), peer_flags=()):
    """Figures of one batch size: train with a graph (where it can), without (where it cannot, or where asked for), and Python's
    eager step."""
    programs = {"graph": lambda: train_speed(bench, model, batch, True, *train_flags)} if bench.can_graph() else {}
    if without_graph or not programs:
        programs["eager_step"] = lambda: train_speed(bench, model, batch, False, *train_flags)
    with peer_of(bench, model, batch, *peer_flags) as peer:
        peer.wait_until_ready()
        peer_speed(bench, peer, model, batch)  # warms it up
        programs["python_eager"] = lambda: peer_speed(bench, peer, model, batch)
        seen = in_turn(programs, repeats_of(bench), once=("eager_step",) if "graph" in programs else ())
    figures = {"batch": batch, **{name: statistics.median(values) for name, values in seen.items()}, "seen": seen}
    for program, figure in {"eager_step": "eager_step_over_eager", "graph": "over_eager"}.items():
        if program in seen:
            figures[figure] = median_ratio(seen[program], seen["python_eager"])
    if "graph" in seen and "eager_step" in seen:
        figures["graph_step_of_eager_step"] = median_ratio(seen["eager_step"], seen["graph"])
    return figures


def note_no_graph(bench):
    if not bench.can_graph():
        for figure in ("graph", "over_eager", "graph_step_of_eager_step", "over_compiled"):
            bench.missing[figure] = bench.why_no_graph()


def resnet18_speed(bench):
    note_no_graph(bench)
    batches = RESNET_BATCHES[:1] if bench.rehearsal else RESNET_BATCHES
    for batch in batches:
        if bench.figures and bench.left() < LEAST_S:
            bench.missing[f"batch_{batch}"] = f"{bench.left():.0f} s were left"
            continue
        # A step without a graph is slower by most where the batch is small, and measured there alone.
        bench.figures[f"batch_{batch}"] = beside_eager(bench, "resnet18", batch_of(bench, batch), batch == batches[0])
        seen = [one for name, one in bench.figures.items() if name.startswith("batch_")]
        bench.figures["best"] = max(seen, key=lambda one: one.get("graph") or one["eager_step"])
        bench.keep()


def netresdeep_speed(bench):
    note_no_graph(bench)
    bench.figures["best"] = beside_eager(bench, "netresdeep", batch_of(bench, NETRESDEEP_BATCH), True)


def resnet50_speed(bench):
    """ImageNet's size of images, which lie on the GPU in both programs."""
    note_no_graph(bench)
    batch, size = batch_of(bench, RESNET50["batch"]), 32 if bench.rehearsal else RESNET50["size"]
    work = ["--input-size", size, *([] if bench.rehearsal else ["--stem", "imagenet"])]
    bench.figures["best"] = beside_eager(bench, "resnet50", batch, False, work, work)


def resnet18_compiled(bench):
    note_no_graph(bench)
    batch = batch_of(bench, COMPILED_BATCH)
    with peer_of(bench, "resnet18", batch, *compile_mode(bench)) as peer:
        try:
            peer.wait_until_ready()
        except Expired:
            raise Expired("torch.compile had not finished its first steps in time") from None
        peer_speed(bench, peer, "resnet18", batch)
        programs = {
            "train": lambda: train_speed(bench, "resnet18", batch, bench.can_graph()),
            "compiled": lambda: peer_speed(bench, peer, "resnet18", batch),
        }
        seen = in_turn(programs, repeats_of(bench))
    bench.figures |= {"batch": batch, **{name: statistics.median(values) for name, values in seen.items()}, "seen": seen}
    bench.figures["over_compiled" if bench.can_graph() else "eager_step_over_compiled"] = median_ratio(
        seen["train"], seen["compiled"])


def fused_kernels_speed(bench):
    """What this program's own kernels are worth."""
    if bench.rehearsal or not bench.knows("fused_kernels"):
        raise Skip("the fused kernels need a GPU, and a train that has --fused-kernels")
    ways = {"kernels": bench.choose("fused_kernels", True), "operations": bench.choose("fused_kernels", False),
            "padded": ["--pad-channels", 8]}
    speeds = in_turn({name: lambda flags=flags: train_speed(bench, "resnet18", AUGMENTED_BATCH, bench.can_graph(), *flags)
                      for name, flags in ways.items()}, repeats_of(bench))
    bench.figures |= {name: statistics.median(seen) for name, seen in speeds.items()}
    bench.figures |= {"batch": AUGMENTED_BATCH, "seen": speeds,
                      "over_operations": median_ratio(speeds["kernels"], speeds["operations"]),
                      "padded_over_kernels": median_ratio(speeds["padded"], speeds["kernels"])}


def augmentation(bench):
    """What making a batch takes by itself, of a step that makes one."""
    program = bench.gpu_test()
    told = bench.run_well([program, "--gtest_filter=BatchSpeed.*"], bench.with_torch_libraries())
    lines = re.findall(r"^batch (\d+) microseconds ([\d.]+) without kernels ([\d.]+)", told, re.MULTILINE)
    making = {int(batch): float(time) for batch, time, _ in lines}
    batch = AUGMENTED_BATCH
    speeds = in_turn({"step": lambda: train_speed(bench, "resnet18", batch_of(bench, batch), bench.can_graph())}, repeats_of(bench))
    step_us = 1e6 * batch_of(bench, batch) / statistics.median(speeds["step"])
    bench.figures |= {
        "share": making[batch] / step_us,
        "batch": batch,
        "images_per_second": 1e6 * batch / making[batch],
        "microseconds": making,
        "microseconds_without_kernels": {int(batch): float(time) for batch, _, time in lines},
        "step_microseconds": step_us,
    }


LARGEST_KERNELS = 40


def kernel_times(trace, steps):
    """[(microseconds a step, launches a step, name)] of what the GPU did in a trace, the dearest first."""
    seen = {}
    device = {one["tid"] for one in trace if one.get("ph") == "M" and str(one.get("args", {}).get("name", "")).startswith("GPU")}
    for one in trace:
        if one.get("ph") == "X" and one.get("tid") in device:
            time, count = seen.get(one["name"], (0.0, 0))
            seen[one["name"]] = (time + one["dur"], count + 1)
    return sorted(((time / steps, count / steps, name) for name, (time, count) in seen.items()), reverse=True)


def step_profile(bench):
    """Where the time of a step goes, by kernel: ResNet-18, 128 images, in a graph."""
    if bench.rehearsal:
        raise Skip("kernels are a GPU's")
    steps, batch = 10, AUGMENTED_BATCH
    flags = ["--profile", "--profile-first-step", 40, "--profile-steps", steps, "--model", "resnet18", "--augment"]
    with bench.train(*flags, *half_precision(bench), *made_up(bench, 60, 20, batch), graph=bench.can_graph()) as folder:
        trace = json.loads((folder / "trace.json").read_text())
    kernels = kernel_times(trace["traceEvents"], steps)
    if not kernels:
        raise Failure("the trace has no kernel of the GPU")
    bench.figures |= {"batch": batch, "kernels": len(kernels), "launches_a_step": sum(count for _, count, _ in kernels),
                      "busy_us_a_step": sum(time for time, _, _ in kernels),
                      "dearest": [[round(time, 2), round(count, 2), name[:160]] for time, count, name in kernels[:LARGEST_KERNELS]]}


def first_step(bench):
    report = bench.work / "first_step.json"
    train = [*bench.device_flags(bench.can_graph(), "nccl"), *half_precision(bench)]
    peer = ["--device", bench.device, *half_precision(bench)]
    bench.run_well([
        sys.executable, BENCH / "first_step.py", "--repeats", 1 if bench.rehearsal or bench.quick else 3, "--ranks", 1,
        "--dataset", "synthetic", "--train-flags=" + " ".join(train), "--peer-flags=" + " ".join(peer), "--json", report,
    ])
    told = json.loads(report.read_text())
    bench.figures |= {
        "of_python": statistics.median(1 / ratio for ratio in told["ratios"]),
        "train_s": statistics.median(told["seconds"]["ddprun"]),
        "python_s": statistics.median(told["seconds"]["torchrun"]),
        "seen": told["seconds"],
    }


def save_stall(bench):
    """A save after each second window: the windows after one are longer by what it holds training up."""
    batch, every = batch_of(bench, 128), 1 if bench.rehearsal else 20
    # All steps in one epoch, whose end would be in a window too.
    work = made_up(bench, 13 * every, every, batch)
    work[work.index("--samples") + 1] = 14 * every * batch
    flags = ["--model", "resnet18", *work, "--checkpoint-every", 2 * every]
    with bench.train(*flags, graph=bench.can_graph()) as folder:
        lines = windows(folder)
    seconds = {b["step"]: b["time"] - a["time"] for a, b in zip(lines, lines[1:])}
    saving = [time for step, time in seconds.items() if step // every % 2 == 1 and step > 2 * every]
    others = [time for step, time in seconds.items() if step // every % 2 == 0 and step > 2 * every]
    bench.figures |= {"stall_ms": 1000 * (statistics.median(saving) - statistics.median(others)),
                      "seen": {"with_save_s": saving, "without_s": others}}
    peer = [sys.executable, BENCH / "checkpoint_cost.py", "--torch", bench.work, "--device", bench.device, "--batch", batch]
    with contextlib.suppress(Failure, Expired):  # the peer's figure is for comparison only
        bench.figures["python_stall_ms"] = json.loads(bench.run_well([*peer, "--saves", 3]))["stall_ms"]


def data_set_of_speedrun(bench):
    """CIFAR-10, else what stands in for it: (name, folder)."""
    with contextlib.suppress(Skip):
        return "cifar10", cifar10_folder(bench)
    return "fashion-mnist", fashion_mnist_folder(bench)


def small_speedrun(bench):
    return ["--epochs", 0.1, "--width", 0.25, "--batch-size", 500] if bench.rehearsal else []


def speedrun_beside(bench, seeds, *flags):
    """(data set, what tests/bench/speedrun.py has seen: {"train": [{figure: value} of each seed], "PyTorch": [...]})."""
    if not bench.knows("recipe"):
        raise Skip("the train of this bundle has no --recipe")
    if not (BENCH / "speedrun.py").exists():
        raise Skip("this bundle has no tests/bench/speedrun.py, which runs the recipe in PyTorch beside it")
    dataset, data = data_set_of_speedrun(bench)
    report = bench.work / "speedrun.json"
    train = [*bench.choose("cuda_graph", True), *bench.choose("device_data", True)]
    command = [sys.executable, BENCH / "speedrun.py", "--seeds", seeds, "--train-flags=" + " ".join(train), "--json", report]
    bench.run_well([*command, "--dataset", dataset, *(["--data-dir", data] if data else []), *small_speedrun(bench), *flags])
    return dataset, json.loads(report.read_text())["seen"]


def speedrun_ratio(seen, figure):
    return median_ratio(*([run[figure] for run in seen[name]] for name in ("train", "PyTorch")))


def speedrun(bench):
    """Beside eager PyTorch, whose command is the shorter one."""
    dataset, seen = speedrun_beside(bench, 1 if bench.rehearsal or bench.quick else 3)
    timer = statistics.median(run["timer"] for run in seen["train"])
    bench.figures |= {
        "dataset": dataset,
        "accuracy": statistics.mean(run["accuracy"] for run in seen["train"]) / 100,
        "timer_s": timer,
        "command_of_python": speedrun_ratio(seen, "command"),
        "training_of_python_eager": speedrun_ratio(seen, "timer"),
        "seen": seen,
    }
    if dataset == "cifar10":
        bench.figures |= {"cifar10_accuracy": bench.figures["accuracy"], "cifar10_timer_s": timer}
    else:
        for figure in ("cifar10_accuracy", "cifar10_timer_s"):
            bench.missing[figure] = f"CIFAR-10 is not at hand; {dataset} was taken"


def speedrun_compiled(bench):
    """Beside torch.compile, whose timer leaves compiling out."""
    if bench.rehearsal:
        raise Skip("a rehearsal compiles nothing")
    dataset, seen = speedrun_beside(bench, 1, "--peer-flags=--compile")
    bench.figures |= {"dataset": dataset, "training_of_python": speedrun_ratio(seen, "timer"), "seen": seen}
