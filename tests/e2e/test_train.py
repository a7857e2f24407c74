# SPDX-License-Identifier: Apache-2.0
"""`train` from a shell: under ddprun, under other launchers, alone; on a terminal and not; configured and not."""

import os
import pty
import re
import select
import time

import numpy
import pytest
import torch
from conftest import DDPRUN, TRAIN, clean_environment, finish_all, free_port, run, start, torchrun_standalone

SMALL = ["--dataset", "synthetic", "--batch-size", "16", "--max-steps", "6", "--log-every", "2", "--lr", "0.01"]
LOSS = re.compile(r"epoch (\d+)/\d+ batch (\d+)/\d+ loss (\d+\.\d+)")


def test_every_rank_prints_its_loss_and_rank_0_the_table(tmp_path):
    done = run([DDPRUN, "--standalone", "--nproc-per-node", "2", "train", *SMALL, "--output-dir", tmp_path])
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        mine = [line for line in done.stdout.splitlines() if line.startswith(f"[{rank}] ")]
        assert [batch for _, batch, _ in LOSS.findall("\n".join(mine))] == ["2", "4", "6"], done.stdout
    for word in ("accuracy", "images", "time"):
        assert len(re.findall(rf"^\[0\] .*{word}", done.stdout, re.MULTILINE)) >= 1, done.stdout
        assert not re.search(rf"^\[1\] .*test {word}", done.stdout, re.MULTILINE)
    assert (tmp_path / "cifar_net.pth").is_file()


def test_the_command_line_is_over_the_file(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("model: netresdeep\ndataset: synthetic\nmax_steps: 4\nbatch_size: 8\nlog_every: 1\n")
    arguments = [TRAIN, "--config", config, "--max_steps", "2", "--output-dir", tmp_path]
    done = run(arguments)
    assert done.returncode == 0, done.stderr
    assert [batch for _, batch, _ in LOSS.findall(done.stdout)] == ["1", "2"]


@pytest.mark.parametrize(
    ("text", "says"),
    [("modle: netresdeep\n", ["modle"]), ("batch_size: many\n", ["batch_size", "many"]), ("model: [\n", ["YAML|yaml"])],
)
def test_a_bad_file_is_named_with_its_line(tmp_path, text, says):
    config = tmp_path / "config.yaml"
    config.write_text("# a comment\n" + text)
    done = run([TRAIN, "--config", config])
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    for word in ["config.yaml", *says]:
        assert re.search(word, done.stderr), done.stderr


def test_under_torchrun_by_hand_and_alone_it_is_the_same_training(tmp_path):
    """Two ranks started by ddprun, by torchrun and by hand end in the same parameters."""
    by_hand_port = str(free_port())
    outputs = {name: tmp_path / name for name in ("ddprun", "torchrun", "hand")}
    two = ["--nproc-per-node", "2"]
    runs = {
        "ddprun": [[DDPRUN, "--standalone", *two, TRAIN]],
        "torchrun": [[*torchrun_standalone(), *two, "--no-python", TRAIN]],
        "hand": [[TRAIN], [TRAIN]],
    }
    for name, commands in runs.items():
        processes = []
        for rank, command in enumerate(commands):
            env = clean_environment(OMP_NUM_THREADS="1")
            if name == "hand":
                env.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=by_hand_port)
            processes.append(start([*command, *SMALL, "--no-eval", "--output-dir", outputs[name]], env=env))
        results = finish_all(processes)
        assert [code for code, _, _ in results] == [0] * len(commands), results
    states = {name: torch.load(path / "cifar_net.pth") for name, path in outputs.items()}
    for name, state in states.items():
        for key, tensor in state.items():
            assert torch.equal(tensor, states["ddprun"][key]), (name, key)


def test_progress_bar_on_a_terminal(tmp_path):
    """Rank 0's bar is drawn over itself; the losses stay as lines."""
    parent, child = pty.openpty()
    process = start_on(child, [DDPRUN, "--standalone", "--nproc-per-node", "2", "train", *SMALL], tmp_path)
    os.close(child)
    shown = read_all(parent, process)
    assert process.returncode == 0, shown
    assert re.search(r"\d+%", shown), shown
    assert "\r" in shown.replace("\r\n", "")
    assert len(LOSS.findall(shown)) >= 6


def start_on(terminal, command, output_dir):
    import subprocess

    return subprocess.Popen(
        [*map(str, command), "--output-dir", str(output_dir)],
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        env=clean_environment(TERM="xterm"),
    )


def read_all(terminal, process, timeout=120):
    shown, deadline = b"", time.monotonic() + timeout
    while time.monotonic() < deadline:
        ready, _, _ = select.select([terminal], [], [], 0.2)
        if ready:
            try:
                piece = os.read(terminal, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            shown += piece
        elif process.poll() is not None:
            break
    process.wait(timeout=30)
    os.close(terminal)
    return shown.decode(errors="replace")


def write_cifar10(folder, images):
    """Files of CIFAR-10's binary version, small: a label's class is the only bright channel and half."""
    generator = numpy.random.default_rng(5)
    folder.mkdir()
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        labels = generator.integers(0, 10, images, dtype=numpy.uint8)
        pixels = generator.integers(0, 64, (images, 3, 32, 32), dtype=numpy.uint8)
        for image, label in zip(pixels, labels):
            image[label % 3, 3 * label : 3 * label + 3] = 255
        records = numpy.concatenate([labels[:, None], pixels.reshape(images, -1)], axis=1)
        records.tofile(folder / name)


def test_cifar10_files_train(tmp_path):
    write_cifar10(tmp_path / "cifar-10-batches-bin", 200)
    done = run(
        [DDPRUN, "--standalone", "--nproc-per-node", "2", "train", "--dataset", "cifar10", "--data-dir", tmp_path]
        + ["--epochs", "6", "--batch-size", "25", "--lr", "0.01", "--no-augment", "--output-dir", tmp_path],
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    accuracy = float(re.search(r"test accuracy\D+(\d+\.\d+) ?%", done.stdout).group(1))
    assert accuracy > 50, done.stdout  # one in ten by chance: it has learnt from these files
    assert "200" in done.stdout  # all test images counted, once


@pytest.mark.parametrize("model", ["resnet18", *(pytest.param(model, marks=pytest.mark.nightly) for model in ("resnet34", "resnet50"))])
def test_resnets_learn(tmp_path, model):
    write_cifar10(tmp_path / "cifar-10-batches-bin", 8)  # 40 images, all of them in each step
    done = run(
        [DDPRUN, "--standalone", "--nproc-per-node", "2", "train", "--model", model, "--dataset", "cifar10"]
        + ["--data-dir", tmp_path, "--batch-size", "20", "--epochs", "8", "--warmup-epochs", "0", "--lr", "0.005"]
        + ["--log-every", "1", "--no-eval", "--output-dir", tmp_path],
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    losses = [float(loss) for line in done.stdout.splitlines() if line.startswith("[0]") for _, _, loss in LOSS.findall(line)]
    assert len(losses) == 8
    assert losses[-1] < 0.9 * losses[0]


def test_an_overflow_in_the_last_update_is_not_written(tmp_path):
    """The loss of a step is computed before its update: only the parameters show what the last one did."""
    diverging = ["--model", "linear", "--dataset", "random", "--max-steps", "1", "--lr", "1e300", "--warmup-epochs", "0"]
    done = run([TRAIN, *diverging, "--schedule", "constant", "--output-dir", tmp_path])
    assert done.returncode == 1, done.stdout + done.stderr
    assert "parameters are not finite after step 1; try a lower --lr than 1e+300" in done.stderr
    assert not (tmp_path / "cifar_net.pth").exists()
