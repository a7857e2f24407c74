# SPDX-License-Identifier: Apache-2.0
"""Commands typed by hand on two nodes, not quite the same: both end before training, with the setting and both values."""

import pytest
from conftest import TRAIN, clean_environment, finish_all, free_port, run, start
from test_data import make_cifar10

SMALL = ["--model", "simple-cnn", "--dataset", "synthetic", "--samples", "64", "--batch-size", "4", "--max-steps", "4"]


def two_nodes(tmp_path, one, other, ranks=2):
    port = str(free_port())
    processes = []
    for rank, words in enumerate([one] + [other] * (ranks - 1)):
        env = clean_environment(
            RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=port, OMP_NUM_THREADS="1"
        )
        folder = tmp_path / str(rank)
        processes.append(start([TRAIN, *words, "--output-dir", folder, "--timeout", "60"], env=env))
    return finish_all(processes)


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (["--lr", "0.02"], "--lr is 0.02 on rank 1, but 0.01 on rank 0"),
        (["--max-steps", "5"], "--max-steps is 5 on rank 1, but 4 on rank 0"),
        (["--batch-size", "8"], "--batch-size is 8 on rank 1, but 4 on rank 0"),
        (["--no-eval"], "--eval is false on rank 1, but true on rank 0"),
        (["--checkpoint-dir", "saved"], "saving of checkpoints is enabled on rank 1, but disabled on rank 0"),
        (["--samples", "65"], "--samples is 65 on rank 1, but 64 on rank 0"),
    ],
)
def test_a_setting_that_differs_is_named_by_both(tmp_path, other, says):
    results = two_nodes(tmp_path, SMALL, [*SMALL, *other])
    for code, out, err in results:
        assert code == 1 and "loss" not in out, results
        assert err.startswith("train: the ranks do not agree: " + says), results
        assert len(err.strip().splitlines()) == 1, err


def test_what_a_host_decides_for_itself_may_differ(tmp_path):
    other = ["--loader-threads", "2", "--log-every", "1", "--device", "cpu", "--no-metrics", "--timeout", "50"]
    results = two_nodes(tmp_path, SMALL, [*SMALL, *other])
    assert [code for code, _, _ in results] == [0, 0], results


def test_data_that_differ_are_named(tmp_path):
    """Both are whole files, of other lengths."""
    for name, records in (("a", 40), ("b", 39)):
        (tmp_path / name).mkdir()
        make_cifar10(tmp_path / name, records)
    words = ["--dataset", "cifar10", "--batch-size", "4", "--max-steps", "1", "--data-dir"]
    results = two_nodes(tmp_path, [*words, tmp_path / "a"], [*words, tmp_path / "b"])
    for code, _, err in results:
        assert code == 1 and "the number of training images is 195 on rank 1, but 200 on rank 0" in err, results


def test_models_that_differ_are_not_evaluated_together(tmp_path):
    for seed in ("0", "1"):
        done = run([TRAIN, *SMALL, "--max-steps", "0", "--no-eval", "--seed", seed, "--output-dir", tmp_path / f"seed{seed}"])
        assert done.returncode == 0, done.stderr
    words = ["--model", "simple-cnn", "--dataset", "synthetic", "--samples", "64"]
    commands = [["eval", tmp_path / f"seed{seed}" / "cifar_net.pth", *words] for seed in ("0", "1")]
    for code, _, err in two_nodes(tmp_path, *commands):
        assert code == 1 and "the checksum of the model is" in err, err
