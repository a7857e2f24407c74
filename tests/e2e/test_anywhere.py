# SPDX-License-Identifier: Apache-2.0
"""`train` wherever it is started: by mpirun, by srun, by variables, by a file of them, by itself with --world-size;
what it says where one of those is wrong. (Under ddprun, under torchrun and alone: test_train.py.)"""

import os
import re
import shutil
import socket

import pytest
import torch
from conftest import DDPRUN, TRAIN, clean_environment, finish_all, free_port, run, start
from slurm_cluster import DAEMONS, slurm  # noqa: F401  (a fixture)

SMALL = ["--dataset", "synthetic", "--batch-size", "8", "--max-steps", "3", "--log-every", "1", "--no-eval"]
OPEN_MPI = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
HYDRA = ["mpiexec.hydra"]
ONE_SENTENCE = re.compile(r"train: [^\n]+\n?")


def environment(**more):
    # Open MPI keeps its session under TMPDIR, and wants a name for each core that it binds to.
    return clean_environment(OMP_NUM_THREADS="1", **more)


def assert_world(output, size):
    """Each rank has trained; only rank 0 has written the summary."""
    assert len(re.findall(r"batch \d+/\d+ loss", output)) == 3 * size, output
    assert len(re.findall(rf"world size\D+{size}\b", output)) <= 1, output


@pytest.fixture
def alone(tmp_path):
    """The model of a world of one and of two, to compare with."""

    def model(size):
        folder = tmp_path / f"by-ddprun-{size}"
        if not folder.exists():
            command = [DDPRUN, "--standalone", "--nproc-per-node", str(size), TRAIN, *SMALL, "--output-dir", folder]
            done = run(command, env=environment())
            assert done.returncode == 0, done.stderr
        return torch.load(folder / "cifar_net.pth")

    return model


def assert_same(path, expected):
    found = torch.load(path / "cifar_net.pth")
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize("launcher", [OPEN_MPI, HYDRA], ids=lambda command: command[0])
def test_mpirun_needs_nothing_beside_it(tmp_path, alone, launcher):
    if shutil.which(launcher[0]) is None:
        pytest.skip(f"{launcher[0]} is not installed")
    # What Hydra says does not tell two jobs apart: they would meet at the same port.
    more = {"MASTER_PORT": str(free_port())} if launcher is HYDRA else {}
    done = run([*launcher, "-n", "2", TRAIN, *SMALL, "--output-dir", tmp_path / "mpi"], env=environment(**more))
    assert done.returncode == 0, done.stderr
    assert_world(done.stdout, 2)
    assert_same(tmp_path / "mpi", alone(2))


def test_mpirun_of_another_number_than_asked(tmp_path):
    if shutil.which(OPEN_MPI[0]) is None:
        pytest.skip("Open MPI is not installed")
    done = run([*OPEN_MPI, "-n", "2", TRAIN, *SMALL, "--world-size", "3"], env=environment())
    assert done.returncode == 2
    assert "--world-size is 3, but mpirun has started 2 processes" in done.stderr


def test_srun_needs_nothing_beside_it(tmp_path, alone, slurm):  # noqa: F811
    done = run(
        [DAEMONS["srun"], "-Q", "--nodes=1", "--ntasks=2", TRAIN, *SMALL, "--output-dir", tmp_path / "srun"],
        env=environment(**slurm.environment),
    )
    assert done.returncode == 0, done.stderr
    assert_world(done.stdout, 2)
    assert_same(tmp_path / "srun", alone(2))


def test_srun_on_two_nodes(tmp_path, alone, slurm):  # noqa: F811
    """n1 is no name of this machine, so where rank 0 is must be said here; on a cluster it need not be."""
    done = run(
        [DAEMONS["srun"], "-Q", "--nodes=2", "--ntasks=2", TRAIN, *SMALL, "--output-dir", tmp_path / "srun"],
        env=environment(MASTER_ADDR="127.0.0.1", GLOO_SOCKET_IFNAME="lo", **slurm.environment),
    )
    assert done.returncode == 0, done.stderr
    assert_world(done.stdout, 2)
    assert_same(tmp_path / "srun", alone(2))


@pytest.mark.parametrize("spelling", ["--world-size", "--world_size"])
def test_world_size_starts_the_ranks_itself(tmp_path, alone, spelling):
    done = run([TRAIN, *SMALL, spelling, "2", "--output-dir", tmp_path / "own"], env=environment())
    assert done.returncode == 0, done.stderr
    assert_world(done.stdout, 2)
    assert "[0] " in done.stdout and "[1] " in done.stdout
    assert_same(tmp_path / "own", alone(2))


def test_world_size_of_one_is_this_process(tmp_path):
    done = run([TRAIN, *SMALL, "--world-size", "1", "--output-dir", tmp_path], env=environment())
    assert done.returncode == 0, done.stderr
    assert "[0] " not in done.stdout
    assert_world(done.stdout, 1)


def test_world_size_without_ddprun_beside_it(tmp_path):
    lonely = tmp_path / "train"
    os.link(TRAIN, lonely) if os.stat(TRAIN).st_dev == os.stat(tmp_path).st_dev else shutil.copy(TRAIN, lonely)
    done = run([lonely, *SMALL, "--world-size", "2"], env=environment())
    assert done.returncode == 2
    assert f"{tmp_path}/ddprun" in done.stderr and "torchrun" in done.stderr
    assert ONE_SENTENCE.fullmatch(done.stderr), done.stderr


@pytest.mark.parametrize("file_has", ["all", "where"])
def test_an_env_file_says_what_the_environment_does_not(tmp_path, alone, file_has):
    """`all`: of rank 0; rank 1's own RANK goes over it. `where`: MASTER_ADDR and MASTER_PORT only."""
    file = tmp_path / ".env"
    text = f"# where rank 0 is\nMASTER_ADDR=127.0.0.1\nexport MASTER_PORT='{free_port()}'\n"
    file.write_text(text + ("WORLD_SIZE=2\nRANK=0\n" if file_has == "all" else ""))
    arguments = [TRAIN, *SMALL, "--env-file", file, "--output-dir", tmp_path / "hand"]
    if file_has == "where":
        arguments += ["--world-size", "2"]
    ranks = [{"RANK": "0"}, {"RANK": "1"}]
    if file_has == "all":
        ranks[0] = {}
    results = finish_all([start(arguments, env=environment(**variables)) for variables in ranks])
    assert [code for code, _, _ in results] == [0, 0], results
    assert_same(tmp_path / "hand", alone(2))


def test_an_env_file_with_an_address_leaves_world_size_to_start_the_ranks(tmp_path, alone):
    """As programs do that spawn their own ranks."""
    (tmp_path / ".env").write_text("MASTER_ADDR=localhost\nMASTER_PORT=12355\n")
    done = run(
        [TRAIN, *SMALL, "--env_file=.env", "--world_size=2", "--backend", "gloo", "--output-dir", "out"],
        env=environment(),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert_world(done.stdout, 2)
    assert_same(tmp_path / "out", alone(2))


def test_an_env_file_is_read_only_if_it_is_named(tmp_path):
    (tmp_path / ".env").write_text("RANK=7\n")
    done = run([TRAIN, *SMALL], env=environment(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr


# ---- The usual troubles -----------------------------------------------------------------------------------------


def by_hand(rank, size, port, *arguments, **more):
    env = environment(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), **more)
    return start([TRAIN, *SMALL, *arguments], env=env)


def assert_sentences(results, *says, code=1):
    for seen, _, err in results:
        assert seen == code, results
        assert ONE_SENTENCE.fullmatch(err), err
    for words in says:
        assert any(re.search(words, err) for _, _, err in results), (words, results)


def test_world_sizes_that_differ(port, tmp_path):
    arguments = ["--output-dir", tmp_path]
    results = finish_all([by_hand(0, 2, port, *arguments), by_hand(1, 3, port, *arguments)])
    assert_sentences(results, "rank 1 has WORLD_SIZE 3, rank 0 has 2", "same")


def test_a_rank_that_does_not_come(port, tmp_path):
    results = finish_all([by_hand(0, 2, port, "--timeout", "2", "--output-dir", tmp_path)])
    assert_sentences(results, "rank 1 of 2 did not come within 2 s")


def test_a_master_that_nobody_is(port, tmp_path):
    results = finish_all([by_hand(1, 2, port, "--timeout", "2", "--output-dir", tmp_path)])
    assert_sentences(results, rf"rank 1 did not reach rank 0's store at 127.0.0.1:{port}")


def test_a_port_that_is_taken(tmp_path):
    with socket.socket() as listener:
        listener.bind(("0.0.0.0", 0))
        listener.listen()
        port = listener.getsockname()[1]
        results = finish_all([by_hand(0, 2, port, "--timeout", "2", "--output-dir", tmp_path)])
    assert_sentences(results, "port taken", "another MASTER_PORT")


def test_nccl_without_a_gpu(tmp_path):
    if os.path.exists("/dev/nvidia0"):
        pytest.skip("this machine has a GPU")
    done = run([TRAIN, *SMALL, "--backend", "nccl", "--output-dir", tmp_path], env=environment())
    assert_sentences([(done.returncode, done.stdout, done.stderr)], "the backend nccl needs a CUDA device", "the backend gloo")


def test_more_ranks_than_samples(port, tmp_path):
    for name in ("train", "t10k"):
        (tmp_path / f"{name}-images-idx3-ubyte").write_bytes(b"".join(n.to_bytes(4, "big") for n in (2051, 1, 28, 28)) + bytes(784))
        (tmp_path / f"{name}-labels-idx1-ubyte").write_bytes(b"".join(n.to_bytes(4, "big") for n in (2049, 1)) + bytes(1))
    arguments = ["--dataset", "fashion-mnist", "--data-dir", tmp_path, "--output-dir", tmp_path]
    results = finish_all([by_hand(0, 2, port, *arguments), by_hand(1, 2, port, *arguments)])
    assert all(code in (1, 2) for code, _, _ in results), results
    for _, _, err in results:
        assert ONE_SENTENCE.fullmatch(err) and "2 ranks" in err, results


@pytest.mark.parametrize(
    ("text", "says"),
    [("RANK 0\n", ["line 1", "KEY=VALUE"]), (None, ["No such file", "--env-file"])],
)
def test_an_env_file_that_is_wrong(tmp_path, text, says):
    if text is not None:
        (tmp_path / ".env").write_text(text)
    done = run([TRAIN, *SMALL, "--env-file", ".env"], env=environment(), cwd=tmp_path)
    assert_sentences([(done.returncode, done.stdout, done.stderr)], *says, code=2)


def test_another_world_size_than_the_launchers(tmp_path):
    done = run([DDPRUN, "--standalone", "--nproc-per-node", "2", TRAIN, *SMALL, "--world-size", "3"], env=environment())
    assert done.returncode == 2
    assert "--world-size is 3, but WORLD_SIZE is 2" in done.stderr
