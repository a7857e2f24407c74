# SPDX-License-Identifier: Apache-2.0
"""Each thing that users get wrong gives one sentence that names it and the next move, and leaves nothing behind."""

import os
import pathlib
import re
import socket

import pytest
from conftest import DDPRUN, TRAIN, clean_environment, finish_all, free_port, processes_of_this_session, run, start

CPP_FRAMES = re.compile(r"#\d+ 0x|frame #\d+|terminate called|Exception raised from|\bstd::|c10::|absl::")
ONE_NODE = [DDPRUN, "--standalone"]


def assert_one_sentence(done, code, *says, limit=1):
    """`limit`: how many lines the complaint may have."""
    code_seen, _, err = done if isinstance(done, tuple) else (done.returncode, done.stdout, done.stderr)
    assert code_seen == code, err
    assert not CPP_FRAMES.search(err), err
    lines = [line for line in err.splitlines() if line.strip()]
    assert 1 <= len(lines) <= limit, err
    for word in says:
        assert re.search(word, err), (word, err)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--no-such-flag", "true"], 2, ["--no-such-flag", "--help"]),
        (["--nnodes", "zero", "true"], 2, ["--nnodes", "zero"]),
        (["--nnodes", "0", "true"], 2, ["--nnodes", "0"]),
        (["--nnodes", "3:2", "true"], 2, ["--nnodes", "3:2"]),
        (["--nproc-per-node", "-1", "true"], 2, ["--nproc-per-node", "-1"]),
        (["--nproc-per-node", "many", "true"], 2, ["--nproc-per-node", "many"]),
        (["--max-restarts", "-2", "true"], 2, ["--max-restarts"]),
        (["--no-restart-exit-codes", "1,SIGNONE", "true"], 2, ["--no-restart-exit-codes", "SIGNONE", "77-80"]),
        (["--restart-delay", "60:1", "true"], 2, ["--restart-delay", "60:1"]),
        (["--node-cooldown", "60", "true"], 2, ["--node-cooldown", "--node-failures-max"]),
        (["--master-port", "70000", "true"], 2, ["--master-port", "70000"]),
        (["--nnodes", "2", "true"], 2, ["--master-addr"]),
        (["--nnodes", "2", "--node-rank", "2", "--master-addr", "127.0.0.1", "true"], 2, ["--node-rank", "2"]),
        (["--rdzv-conf", "join_timeot=3", "true"], 2, ["join_timeot", "join_timeout"]),
        ([], 2, ["program", "--help"]),
        (["--standalone", "no-such-program"], 127, ["no-such-program"]),
        (["--standalone", "./no-such-script.py"], 127, ["no-such-script.py"]),
        (["--standalone", "/etc/passwd"], 126, ["/etc/passwd", "execut"]),
    ],
)
def test_launcher_arguments(arguments, code, says):
    assert_one_sentence(run([DDPRUN, *arguments]), code, *says)


def test_gpu_workers_without_a_gpu():
    if any(pathlib.Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("this machine has a GPU")
    assert_one_sentence(run([*ONE_NODE, "--nproc-per-node", "gpu", "true"]), 1, "GPU", "--nproc-per-node")


@pytest.mark.parametrize("variable", ["PET_NNODES", "PET_MAX_RESTARTS", "PET_NPROC_PER_NODE"])
def test_a_bad_variable_is_named(variable):
    done = run([DDPRUN, "true"], env=clean_environment(**{variable: "lots"}))
    assert_one_sentence(done, 2, "(?i)" + variable.replace("PET_", "").replace("_", "[-_]"), "lots")


def test_a_port_in_use():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        done = run([DDPRUN, "--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", f"--master-port={port}", "true"])
    assert_one_sentence(done, 1, str(port), "in use", "--master-port")


def test_a_master_that_is_not_up_is_waited_for_until_the_deadline(port):
    done = run(
        [DDPRUN, "--nnodes=2", "--node-rank=1", "--master-addr=127.0.0.1", f"--master-port={port}"]
        + ["--rdzv-conf=join_timeout=2", "true"]
    )
    assert_one_sentence(done, 1, f"127.0.0.1:{port}", "not reached yet", "refused", "node 0", limit=3)


def test_a_node_that_does_not_come_is_named(port):
    done = run(
        [DDPRUN, "--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", f"--master-port={port}"]
        + ["--rdzv-conf=join_timeout=2", "true"]
    )
    assert_one_sentence(done, 1, "1 of 2 nodes", "node rank 1", limit=6)


def test_world_sizes_that_disagree(port):
    def node(rank, nnodes):
        return start(
            [DDPRUN, f"--nnodes={nnodes}", f"--node-rank={rank}", "--master-addr=127.0.0.1", f"--master-port={port}"]
            + ["--rdzv-conf=join_timeout=5", "true"]
        )

    first = node(0, 2)
    assert "waiting" in first.stderr.readline()
    second = finish_all([node(1, 3)])[0]
    assert_one_sentence(second, 1, "--nnodes 3", "--nnodes 2")
    # The run itself is not hurt by it: the right node can still come.
    results = finish_all([first, node(1, 2)])
    assert [code for code, _, _ in results] == [0, 0], results


def test_a_node_rank_taken_twice(port):
    common = [DDPRUN, "--nnodes=3", "--master-addr=127.0.0.1", f"--master-port={port}", "--rdzv-conf=join_timeout=5"]
    first = start([*common, "--node-rank=0", "true"])
    assert "waiting" in first.stderr.readline()
    second = start([*common, "--node-rank=1", "true"])
    assert "waiting" in second.stderr.readline()
    assert_one_sentence(finish_all([start([*common, "--node-rank=1", "true"])])[0], 1, "node rank 1", "--node-rank")
    second.terminate()
    first.terminate()
    finish_all([first, second])


def test_a_program_that_crashes_at_once(tmp_path):
    program = tmp_path / "crash"
    program.write_text("#!/bin/sh\nkill -SEGV $$\n")
    program.chmod(0o755)
    done = run([*ONE_NODE, "--nproc-per-node", "2", program])
    assert done.returncode == 139
    assert "SIGSEGV" in done.stderr
    assert not CPP_FRAMES.search(done.stderr)


def test_a_program_of_another_format(tmp_path):
    program = tmp_path / "noise"
    program.write_bytes(b"\x00\x01\x02\x03")
    program.chmod(0o755)
    done = run([*ONE_NODE, program])
    assert done.returncode == 126
    assert "noise" in done.stderr and "xec format" in done.stderr


# ---- The training program --------------------------------------------------------------------------------------

needs_train = pytest.mark.skipif(not os.path.exists(TRAIN), reason="built without LibTorch")


@needs_train
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--no-such-flag"], ["--no-such-flag", "--help"]),
        (["--model", "resnet19"], ["resnet19", "resnet18"]),
        (["--dataset", "imagenet"], ["imagenet", "fashion-mnist"]),
        (["--batch-size", "0"], ["--batch-size"]),
        (["--lr", "-1"], ["--lr"]),
        (["--epochs", "two"], ["--epochs", "two"]),
        (["--config", "/nonexistent.yaml"], ["/nonexistent.yaml"]),
        (["--backend", "mpi"], ["mpi", "gloo"]),
        (["--device", "tpu"], ["tpu", "cuda"]),
        (["--collective-timeout", "-1"], ["collective-timeout", "from 0"]),
    ],
)
def test_train_arguments(arguments, says):
    assert_one_sentence(run([TRAIN, *arguments]), 2, *says)


@needs_train
def test_nccl_without_a_gpu():
    if any(pathlib.Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("this machine has a GPU")
    done = run([TRAIN, "--backend", "nccl", "--dataset", "synthetic", "--max-steps", "1"])
    assert_one_sentence(done, 1, "nccl", "CUDA", "the backend gloo")


@needs_train
def test_cuda_without_a_gpu():
    if any(pathlib.Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("this machine has a GPU")
    done = run([TRAIN, "--device", "cuda", "--dataset", "synthetic", "--max-steps", "1"])
    assert_one_sentence(done, 1, "the device cuda", "no CUDA device", "the device cpu")


@needs_train
def test_nccl_on_the_cpu():
    done = run([TRAIN, "--device", "cpu", "--backend", "nccl", "--dataset", "synthetic", "--max-steps", "1"])
    assert_one_sentence(done, 1, "the backend nccl", "the device is cpu", "the backend gloo")


def idx(magic, *dimensions, data=b""):
    return b"".join(n.to_bytes(4, "big") for n in (magic, *dimensions)) + data


@needs_train
@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        (None, None, ["no-such-folder", "--data-dir"]),
        ("train-images-idx3-ubyte", idx(2051, 10, 28, 28, data=b"\0" * 100), ["train-images-idx3-ubyte", "short"]),
        ("train-images-idx3-ubyte", b"PNG not IDX, certainly", ["train-images-idx3-ubyte", "IDX"]),
        ("train-images-idx3-ubyte", b"\x1f\x8b and then not gzip", ["train-images-idx3-ubyte"]),
    ],
)
def test_fashion_mnist_files(tmp_path, name, content, says):
    folder = tmp_path / "no-such-folder"
    if name:
        folder = tmp_path
        (folder / name).write_bytes(content)
    done = run([TRAIN, "--dataset", "fashion-mnist", "--data-dir", folder, "--max-steps", "1"])
    assert_one_sentence(done, 1, *says)


@needs_train
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, ["data_batch_1.bin", "fetch-data.sh"]),
        (b"\0" * 3000, ["data_batch_1.bin", "3073"]),
        (b"\x0b" + b"\0" * 3072, ["data_batch_1.bin", "label"]),
    ],
)
def test_cifar10_files(tmp_path, content, says):
    if content is not None:
        (tmp_path / "data_batch_1.bin").write_bytes(content)
    done = run([TRAIN, "--dataset", "cifar10", "--data-dir", tmp_path, "--max-steps", "1"])
    assert_one_sentence(done, 1, *says)


@needs_train
def test_a_failing_train_tells_its_reason_in_the_verdict(tmp_path):
    done = run([*ONE_NODE, "--nproc-per-node", "2", "train", "--dataset", "cifar10", "--data-dir", tmp_path])
    assert done.returncode == 1
    assert "data_batch_1.bin" in done.stderr
    assert not CPP_FRAMES.search(done.stderr)


@needs_train
def test_an_output_folder_that_cannot_be_made():
    done = run([TRAIN, "--dataset", "synthetic", "--max-steps", "0", "--output-dir", "/proc/no/where"])
    assert_one_sentence(done, 2, "/proc/no/where", "--output-dir")


@needs_train
def test_an_unreachable_master_without_a_launcher():
    env = clean_environment(RANK="1", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    done = run([TRAIN, "--dataset", "synthetic", "--max-steps", "1", "--timeout", "2"], env=env)
    assert_one_sentence(done, 1, "127.0.0.1", "MASTER_ADDR")


@needs_train
@pytest.mark.parametrize(("name", "value"), [("WORLD_SIZE", "two"), ("RANK", "5"), ("MASTER_PORT", "0x50")])
def test_bad_variables_without_a_launcher(name, value):
    env = clean_environment(RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="29999")
    env[name] = value
    assert_one_sentence(run([TRAIN, "--dataset", "synthetic"], env=env), 1, name, value)


def test_nothing_is_left_behind():
    """Runs last in this file: no process that any test above started may be alive."""
    assert not processes_of_this_session()


def test_localhost_is_known_where_no_hosts_file_has_it(port):
    """A bare container has an empty /etc/hosts."""
    if os.geteuid() != 0:
        pytest.skip("hiding /etc/hosts needs root")
    hidden = ["unshare", "--mount", "sh", "-c", '[ ! -e /etc/hosts ] || mount --bind /dev/null /etc/hosts; exec "$@"', "sh"]
    done = run([*hidden, DDPRUN, "--nnodes", "1", "--rdzv-endpoint", f"localhost:{port}", "--rdzv-id", "a", "true"])
    assert done.returncode == 0, done.stderr
