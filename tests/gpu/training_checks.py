# SPDX-License-Identifier: Apache-2.0
"""Checks of what a GPU must do rightly. Each takes the Workbench, leaves figures there, and raises Failure if it is wrong."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from workbench import Expired, Failure, Skip, end, last_lines, summary, windows

FASHION_MNIST = ("/usr/share/datasets/fashion-mnist",)
HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("DDPRUN_CACHE_DIR") or pathlib.Path.home() / ".cache" / "ddprun")


def made_up(bench, steps, every, batch):
    samples = 256 if bench.rehearsal else 4096
    return ["--dataset", "synthetic", "--samples", samples, "--batch-size", batch, "--epochs", 1000, "--max-steps", steps,
            "--log-every", every, "--warmup-steps", 10, "--no-eval"]


def learnt_quickly(bench, batch):
    """On CPUs, with 2 ranks of 16 images, the loss of the last of six windows of 10 steps was a fifth of the first's."""
    every, batch = (1, 2) if bench.rehearsal else (25, batch)
    return ["--model", "resnet18", "--lr", 0.01, *made_up(bench, 6 * every, every, batch)]


def data_folder(bench, name, file, places):
    """The folder with `file`, of a data set; Skip if there is none."""
    folders = [pathlib.Path(place) for place in places]
    if bench.data_dir:
        folders = [bench.data_dir, bench.data_dir / name]
    for folder in [*folders, bench.bundle / "data" / name]:
        if any((folder / one).exists() for one in (file, file.removesuffix(".gz"))):
            return folder
    raise Skip(f"{name} is not at hand: {file} is in none of {', '.join(map(str, folders))}; name its folder with --data-dir")


def fashion_mnist_folder(bench):
    return data_folder(bench, "fashion-mnist", "train-images-idx3-ubyte.gz", FASHION_MNIST)


def cifar10_folder(bench):
    return data_folder(bench, "cifar10", "cifar-10-batches-bin/data_batch_1.bin", (CACHE / "data",))


def note_losses(bench, folder, ranks):
    """The loss of the last window of the first one's; Failure unless it was learnt."""
    seen = [line["loss/train"] for line in windows(folder)]
    told = summary(folder)
    bench.figures |= {"loss_ratio": seen[-1] / seen[0], "backend": told["backend"], "world_size": told["world_size"]}
    if told["world_size"] != ranks:
        raise Failure(f"{ranks} ranks were asked for, and {told['world_size']} trained")


def gpu_test(bench):
    program = bench.gpu_test()
    # How fast a kernel is by itself is of use to who changes it: gpu_test --gtest_filter='*Speed*'
    code, out, err = bench.run([program, "--gtest_color=no", "--gtest_filter=-*Speed*"], bench.with_torch_libraries())
    counted = {word: int(number) for word, number in re.findall(r"^\[\s*(PASSED|SKIPPED|FAILED)\s*\] (\d+) test", out, re.MULTILINE)}
    failed = sorted(set(re.findall(r"^\[  FAILED  \] ([\w/]+\.[\w/]+)", out, re.MULTILINE)))
    skipped = re.findall(r"(?s)Skipped\n(.*?)\n\n?\[  SKIPPED \] (\w+\.\w+)", out)
    bench.figures |= {"passed": counted.get("PASSED", 0), "failed": len(failed), "skipped": counted.get("SKIPPED", 0),
                      "skipped_because": {name: why.strip() for why, name in skipped}}
    if failed or code != 0:
        why = re.findall(r"(?m)^.*: Failure\n(?:.+\n)+", out)
        raise Failure(f"gpu_test ended with {code}; failed: {', '.join(failed) or 'none by name'}: {(''.join(why) or err or out)[-2000:].strip()}")


def nccl_world_of_one(bench):
    with bench.train(*learnt_quickly(bench, 64), graph=bench.can_graph()) as folder:
        note_losses(bench, folder, 1)
    if not bench.rehearsal and bench.figures["backend"] != "nccl":
        raise Failure(f"--backend nccl was asked for, and {bench.figures['backend']} was used")


def note_largest_difference(bench, steps, ways):
    """Between the losses of two ways to train the same: {name: (whether a graph, flags)}."""
    losses = []
    for graph, flags in ways.values():
        work = ["--model", "resnet18", "--deterministic", *made_up(bench, steps, 1, 64), *flags]
        with bench.train(*work, graph=graph) as folder:
            losses.append([line["loss/train"] for line in windows(folder)])
    if any(len(seen) != steps for seen in losses):
        raise Failure(f"{steps} losses were expected, and {[len(seen) for seen in losses]} were written")
    differences = [abs(a - b) / max(abs(b), 1e-9) for a, b in zip(*losses)]
    bench.figures |= {"largest_difference": max(differences), "bitwise": losses[0] == losses[1], "seen": dict(zip(ways, losses))}


def graph_equals_eager(bench):
    if not bench.can_graph():
        raise Skip(bench.why_no_graph())
    note_largest_difference(bench, 30, {"graph": (True, []), "eager": (False, [])})


def kernels_equal_operations(bench):
    """In float32 both round differently, and training makes more of it: a few steps."""
    if bench.rehearsal or not bench.knows("fused_kernels"):
        raise Skip("the fused kernels need a GPU, and a train that has --fused-kernels")
    graph = bench.can_graph()
    note_largest_difference(bench, 10, {"kernels": (graph, bench.choose("fused_kernels", True)),
                                        "operations": (graph, bench.choose("fused_kernels", False))})


def equals_python(bench):
    """Steps on real images, beside the same in PyTorch from the same parameters: the largest difference of a parameter. Few
    steps: what both round in another way grows a hundredfold in 20."""
    data = fashion_mnist_folder(bench)
    steps, size = (3, 8) if bench.rehearsal else (20, 64)
    recipe = ["--model", "netresdeep", "--dataset", "fashion-mnist", "--data-dir", data, "--batch-size", size, "--seed", 7,
              "--lr", 0.005, "--no-augment", "--no-eval"]
    work = ["--deterministic", "--epochs", 1, *recipe]
    python = [sys.executable, HERE.parent / "e2e" / "parity_ddp.py", *recipe, "--device", bench.device, "--steps", steps, "--tolerance", 1]
    graph = bench.can_graph()
    bench.environment["NVIDIA_TF32_OVERRIDE"] = "0"  # of both: TF32's roundings are of a thousandth
    try:
        with bench.train(*work, "--max-steps", 0, graph=graph) as initial, bench.train(*work, "--max-steps", steps, graph=graph) as final:
            code, out, err = bench.run(
                [bench.bundle / "bin" / "ddprun", "--standalone", "--nproc-per-node", 1, *python]
                + ["--init", initial / "cifar_net.pth", "--final", final / "cifar_net.pth"]
            )
    finally:
        del bench.environment["NVIDIA_TF32_OVERRIDE"]
    largest = re.search(r"of parameters ([-+.e\d]+)", out)
    if largest is None:
        raise Failure(f"parity_ddp.py ended with {code}: {last_lines(err or out)}")
    bench.figures |= {"largest_difference": float(largest[1]), "steps": steps, "says": out.strip().rpartition(": ")[2]}


def two_ranks_one_gpu(bench):
    if not bench.rehearsal and not bench.knows("device"):
        raise Skip("the train of this bundle has no --device, so several ranks on one GPU cannot be asked for")
    with bench.train(*learnt_quickly(bench, 32), ranks=2, backend="gloo") as folder:
        note_losses(bench, folder, 2)


def pid_of_rank(mark, rank):
    """The process of that rank whose environment has CHECK=`mark`; None: it is not there."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes().split(b"\0")
            variables = (folder / "environ").read_bytes().split(b"\0")
            if command[0].endswith(b"train") and b"RANK=%d" % rank in variables and f"CHECK={mark}".encode() in variables:
                return int(folder.name)
    return None


def train_with_a_kill(bench, folder, flags):
    """Rank 1's process is killed after the first line about a step: what ddprun and train have said."""
    mark = folder.name
    command = [bench.bundle / "bin" / "ddprun", "--standalone", "--nproc-per-node", 2, "--max-restarts", 3, "train", *flags]
    with open(folder / "said", "w+") as said:
        process = bench.start([*command, "--output-dir", folder], environment={"CHECK": mark}, stdout=said, stderr=subprocess.STDOUT)
        try:
            victim = None
            while process.poll() is None and bench.left() > 0:
                if victim is None and re.search(r"batch \d+/", (folder / "said").read_text()) and (victim := pid_of_rank(mark, 1)):
                    os.kill(victim, signal.SIGKILL)
                time.sleep(0.02)
            if process.poll() is None:
                raise Expired("the training with a killed rank was not done in time")
        finally:
            end(process)
        said.seek(0)
        text = said.read()
    if process.returncode != 0 or victim is None:
        raise Failure(f"ddprun ended with {process.returncode}, killed: {victim}: {last_lines(text)}")
    return text


def killed_rank(bench):
    """Of two ranks on one GPU: the other one goes on in place, to the bits of a training that nobody disturbed."""
    if not bench.rehearsal and not bench.knows("device"):
        raise Skip("the train of this bundle has no --device, so several ranks on one GPU cannot be asked for")
    steps, every, batch = (200, 10, 2) if bench.rehearsal else (400, 20, 32)
    work = ["--model", "netresdeep", "--deterministic", *made_up(bench, steps, every, batch)]
    with bench.train(*work, ranks=2, backend="gloo") as folder:
        undisturbed = (folder / "cifar_net.pth").read_bytes()
    folder = pathlib.Path(tempfile.mkdtemp(dir=bench.work))
    try:
        said = train_with_a_kill(bench, folder, [*bench.device_flags(False, "gloo"), *work])
        kept = re.findall(r"goes on after step (\d+) with 2 ranks; the state is rank 0's", said)
        bench.figures |= {"bitwise": (folder / "cifar_net.pth").read_bytes() == undisturbed, "went_on_after": kept}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    bench.figures["kept_and_equal"] = int(bench.figures["bitwise"] and len(kept) == 1)


def fashion_mnist(bench):
    data = fashion_mnist_folder(bench)
    config = bench.bundle / "configs" / "netresdeep-fashion-mnist.yaml"
    # One rank with the images of the configuration's two.
    size = ["--batch-size", 8, "--max-steps", 10] if bench.rehearsal else ["--batch-size", 64]
    flags = ["--config", config, "--data-dir", data, *size]
    with bench.train(*flags, graph=bench.can_graph()) as folder:
        told = summary(folder)
        bench.figures |= {name: told[name] for name in ("test_accuracy", "training_seconds", "total_seconds", "steps")}
