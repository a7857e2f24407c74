# SPDX-License-Identifier: Apache-2.0
"""The folder of a run: `train eval`, `train export` and --resume take it, and a second training there loses no model."""

import json
import re

import pytest
import torch
from conftest import DDPRUN, TRAIN, run
from test_data import png
from test_train_folders import one_sentence

SMALL = ["--model", "simple-cnn", "--dataset", "synthetic", "--samples", "64", "--batch-size", "8", "--max-steps", "4"]
SAVING = ["--checkpoint-every", "2"]


def train(folder, *flags, ranks=1):
    done = run([DDPRUN, "--standalone", "--nproc-per-node", ranks, TRAIN, *SMALL, "--output-dir", folder, *flags])
    assert done.returncode == 0, done.stderr
    return done.stdout


def evaluated(model, *flags):
    """(which file, "K of N images", loss) of `train eval`."""
    done = run([TRAIN, "eval", model, *flags])
    assert done.returncode == 0, done.stderr
    return result_in(done.stdout, r"^model +(\S+)", r"^test loss +(\S+)")


def result_in(text, *more):
    return tuple(
        re.search(pattern, text, re.M).group(1) for pattern in (more[0], r"test accuracy.*\((\d+ of \d+ images)", *more[1:])
    )


def exported(model, output):
    done = run([TRAIN, "export", model, "--format", "pth", "--output", output])
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1, done.stdout
    return done.stdout


def test_eval_and_export_take_the_folder_of_a_run_without_checkpoints(tmp_path):
    train(tmp_path / "run")
    assert evaluated(tmp_path / "run") == evaluated(tmp_path / "run" / "cifar_net.pth")
    assert f": {tmp_path}/run/cifar_net.pth is in " in exported(tmp_path / "run", tmp_path / "x.pth")
    assert (tmp_path / "x.pth").read_bytes() == (tmp_path / "run" / "cifar_net.pth").read_bytes()
    # Moved, as a run's folder is copied to another machine.
    (tmp_path / "run").rename(tmp_path / "moved")
    assert evaluated(tmp_path / "moved")[0] == f"{tmp_path}/moved/cifar_net.pth"


def test_eval_export_and_resume_take_the_folder_of_a_run_with_checkpoints(tmp_path):
    folder = tmp_path / "run"
    train(folder, *SAVING)
    newest = f"{folder}/checkpoints/step-000000004.safetensors"
    assert evaluated(folder)[0] == newest
    assert evaluated(folder)[1:] == evaluated(folder / "cifar_net.pth")[1:]
    assert f": {newest} (step 4) is in " in exported(folder, tmp_path / "x.pth")
    said = train(tmp_path / "more", "--max-steps", "6", "--resume", folder)
    assert f"goes on from {newest}" in said


def test_a_run_that_was_ended_is_evaluated_by_its_newest_checkpoint(tmp_path):
    train(tmp_path, *SAVING)
    (tmp_path / "cifar_net.pth").unlink()
    (tmp_path / "summary.json").unlink()
    assert evaluated(tmp_path)[0] == f"{tmp_path}/checkpoints/step-000000004.safetensors"


def test_a_later_model_of_a_training_without_checkpoints_is_taken_before_older_checkpoints(tmp_path):
    train(tmp_path, *SAVING)
    train(tmp_path, "--seed", "5")
    assert evaluated(tmp_path)[0] == f"{tmp_path}/cifar_net.pth"


def test_a_folder_without_a_model_is_named(tmp_path):
    for command in (["eval"], ["export", "--format", "pth", "--output", tmp_path / "x.pth"]):
        one_sentence(run([TRAIN, *command, tmp_path]), 1, f"there is no model and no good checkpoint in {tmp_path}; name ")


def test_a_second_training_keeps_the_first_model(tmp_path):
    train(tmp_path)
    first, summary = (tmp_path / "cifar_net.pth").read_bytes(), (tmp_path / "summary.json").read_text()
    before = evaluated(tmp_path)[1:]
    said = train(tmp_path, "--seed", "5")
    assert said.count(f"the former model is kept as {tmp_path}/cifar_net-1.pth\n") == 1, said
    assert (tmp_path / "cifar_net-1.pth").read_bytes() == first != (tmp_path / "cifar_net.pth").read_bytes()
    assert (tmp_path / "summary-1.json").read_text() == summary
    # With its description: nothing has to be said of it.
    assert evaluated(tmp_path / "cifar_net-1.pth")[1:] == before


def test_a_training_that_goes_on_replaces_its_own_model_alone(tmp_path):
    train(tmp_path, *SAVING)
    for steps in ("4", "6"):  # it is complete, then goes on
        said = train(tmp_path, *SAVING, "--resume", "auto", "--max-steps", steps)
        assert "earlier training" not in said, said
    assert not list(tmp_path.glob("*-1.pth"))
    assert json.loads((tmp_path / "summary.json").read_text())["steps"] == 2


def test_the_name_of_the_model_is_the_users(tmp_path):
    train(tmp_path, "--model-name", "digits v2", ranks=2)
    assert torch.load(tmp_path / "digits v2.pth") and (tmp_path / "digits v2.pth.json").is_file()
    assert not (tmp_path / "cifar_net.pth").exists()
    assert "digits v2.pth" in run([TRAIN, "eval", tmp_path]).stdout
    # Two names lie side by side.
    train(tmp_path, "--model-name", "other")
    assert (tmp_path / "other.pth").is_file() and (tmp_path / "digits v2.pth").is_file()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("a/b", "is no name of a file; give a name without / "),
        ("..", "is no name of a file"),
        ("net.pth", "ends in .pth, which is added; leave the ending out"),
        ("n" * 300, "has more than 200 bytes"),
        ("resnet18", "would name the file of a --model simple-cnn; pass --model resnet18 for that network"),
    ],
)
def test_a_name_that_cannot_be_meant_is_told_before_training(tmp_path, name, says):
    one_sentence(run([TRAIN, *SMALL, "--output-dir", tmp_path / "out", "--model-name", name]), 2, "--model-name ", says)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("command", "own"),
    [("eval", ["--no-ema", "--tta", "--device", "--world-size"]), ("export", ["--format", "--output", "--no-ema"])],
)
def test_the_help_of_a_command_is_of_that_command(command, own):
    done = run([TRAIN, command, "--help"])
    assert done.returncode == 0
    for flag in [*own, "--dataset", "--data-dir", "--stem"]:
        assert re.search(rf"^  {flag}\b", done.stdout, re.M), (flag, done.stdout)
    for flag in ("--lr", "--epochs", "--checkpoint-every", "--resume", "--output-dir", "--recipe"):
        assert not re.search(rf"^  {flag}\b", done.stdout, re.M), (flag, done.stdout)
    assert "run/checkpoints" not in done.stdout


def test_settings_of_a_training_are_accepted_by_eval_too(tmp_path):
    """A --config file has all of them."""
    done = run([TRAIN, "eval", tmp_path / "gone", "--lr", "0.1", "--checkpoint-every", "5"])
    one_sentence(done, 1, f"{tmp_path}/gone is not there")


def make_flat_folder(folder, of_each=20):
    for label, name in enumerate(("cat", "dog")):
        (folder / name).mkdir(parents=True)
        for i in range(of_each):
            (folder / name / f"{i}.png").write_bytes(png(32, 100 * label + 3 * i))


FLAT = ["--model", "simple-cnn", "--dataset", "imagefolder", "--batch-size", "4", "--max-steps", "4", "--lr", "0.001"]


def test_a_flat_folder_of_classes_is_split_and_evaluated_on_the_same_images(tmp_path):
    make_flat_folder(tmp_path / "data")
    flags = [*FLAT, "--data-dir", tmp_path / "data"]
    done = run([TRAIN, *flags, "--output-dir", tmp_path / "run"])
    one_sentence(done, 1, f"{tmp_path}/data has no folder val or test with images", "pass --val-share 0.1 to test on a tenth")
    results = []
    for ranks in (1, 2):
        out = tmp_path / f"run{ranks}"
        more = ["--val-share", "0.2", "--checkpoint-every", "2", "--log-samples", "--output-dir", out]
        done = run([DDPRUN, "--standalone", "--nproc-per-node", ranks, TRAIN, *flags, *more])
        assert done.returncode == 0, done.stderr
        assert "32 training and 8 test images" in done.stdout, done.stdout
        summary = json.loads((out / "summary.json").read_text())
        assert (out / "model.pth").is_file(), "no CIFAR"
        # Neither the share nor the seed is given again.
        for model in (out, out / "model.pth"):
            _, share, loss = evaluated(model)
            assert share == f"{round(8 * summary['test_accuracy'])} of 8 images"
            assert float(loss) == pytest.approx(summary["test_loss"], abs=1e-4)
        results.append(out)
    # The two models are judged by the same images, whichever number of ranks has trained them.
    done = run([DDPRUN, "--standalone", "--nproc-per-node", "2", TRAIN, "eval", results[0]])
    assert evaluated(results[0])[1:] == result_in(done.stdout, r"test accuracy.*\((\d+ of \d+ images)", r"^\[0\] test loss +(\S+)")[1:]
    # A checkpoint goes on with its own split alone.
    done = run([TRAIN, *flags, "--val-share", "0.3", "--resume", results[0], "--output-dir", tmp_path / "other"])
    one_sentence(done, 2, "is of --val-share 0.2, but this training is of --val-share 0.3")


def test_a_share_is_refused_where_it_means_nothing(tmp_path):
    make_flat_folder(tmp_path / "train", of_each=2)
    make_flat_folder(tmp_path / "val", of_each=2)
    done = run([TRAIN, *FLAT, "--data-dir", tmp_path, "--val-share", "0.1", "--output-dir", tmp_path / "run"])
    one_sentence(done, 1, f"those in {tmp_path}/val are there for it; pass --val-share 0 or another --data-dir")
    done = run([TRAIN, *SMALL, "--val-share", "0.1", "--output-dir", tmp_path / "run"])
    one_sentence(done, 2, "--dataset synthetic has test images of its own")
