# SPDX-License-Identifier: Apache-2.0
"""`train --model-file`: a model that was written in Python and saved as TorchScript trains here as the same model of
this program does, on any number of ranks, and can be evaluated and exported."""

import pytest
import torch
from conftest import DDPRUN, TRAIN, run
from python_models import make_model
from test_bad_input import assert_one_sentence

SHORT = ["--dataset", "synthetic", "--samples", "256", "--batch-size", "8", "--lr", "0.01", "--log-every", "4"]


def save_script(path, name="simple-cnn", trace=False):
    """The weights are those of `train --model NAME` with seed 0."""
    model = make_model(name)
    done = run(
        [TRAIN, "--model", name, *SHORT, "--max-steps", "0", "--no-eval", "--output-dir", path.parent / "initial"]
    )
    assert done.returncode == 0, done.stderr
    model.load_state_dict(torch.load(path.parent / "initial" / "cifar_net.pth"))
    script = torch.jit.trace(model, torch.zeros(2, 3, 32, 32)) if trace else torch.jit.script(model)
    torch.jit.save(script, path)


def train(folder, ranks, *settings):
    done = run(
        [DDPRUN, "--standalone", "--nproc-per-node", ranks, "train", *SHORT, "--output-dir", folder, *settings],
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return torch.load(folder / "cifar_net.pth"), done.stdout


@pytest.mark.parametrize(
    ("name", "trace", "ranks"), [("simple-cnn", False, 2), ("simple-cnn", True, 1), ("netresdeep", False, 1)]
)
def test_it_trains_as_the_same_model_written_in_cpp(tmp_path, name, trace, ranks):
    save_script(tmp_path / "net.pt", name, trace)
    theirs, said = train(tmp_path / "script", ranks, "--model-file", tmp_path / "net.pt", "--max-steps", "6")
    ours, _ = train(tmp_path / "own", ranks, "--model", name, "--max-steps", "6")
    assert "torchscript: " in said
    assert theirs.keys() == ours.keys()
    initial = torch.load(tmp_path / "initial" / "cifar_net.pth")
    for key, tensor in ours.items():
        assert torch.allclose(theirs[key].float(), tensor.float(), atol=1e-4), key
    assert any((theirs[key] - initial[key]).abs().max() > 1e-3 for key in initial if key.endswith("weight"))


def test_checkpoints_evaluation_and_export(tmp_path):
    save_script(tmp_path / "net.pt")
    more = ["--model-file", tmp_path / "net.pt", "--checkpoint-every", "4", "--max-steps", "8"]
    state, said = train(tmp_path / "run", 1, *more)
    accuracy = said[said.index("test accuracy") :].split("(")[1].split(",")[0]
    for model in ("run/checkpoints", "run/cifar_net.pth"):
        done = run([TRAIN, "eval", tmp_path / model])
        assert done.returncode == 0 and accuracy in done.stdout, done
    done = run([TRAIN, "export", tmp_path / "run/checkpoints", "--format", "torchscript", "--output", tmp_path / "x.pt"])
    assert done.returncode == 0, done.stderr
    script = torch.jit.load(str(tmp_path / "x.pt"))
    assert all(torch.equal(tensor, state[name]) for name, tensor in script.state_dict().items())
    assert script(torch.zeros(3, 3, 32, 32)).shape == (3, 10)
    done = run([TRAIN, "export", tmp_path / "run/checkpoints", "--format", "hf", "--output", tmp_path / "hf"])
    assert_one_sentence(done, 2, "torchscript", "--format hf")
    assert not (tmp_path / "hf").exists()


def test_what_cannot_be_trained_is_one_sentence(tmp_path):
    torch.save(make_model("simple-cnn").state_dict(), tmp_path / "state.pth")
    torch.jit.save(torch.jit.script(torch.nn.Flatten()), tmp_path / "empty.pt")
    torch.jit.save(torch.jit.script(make_model("simple-cnn", classes=7)), tmp_path / "seven.pt")
    torch.jit.save(torch.jit.script(make_model("simple-cnn")), tmp_path / "net.pt")
    for settings, words in [
        (["--model-file", tmp_path / "state.pth"], ["state.pth cannot be read as TorchScript", "--init-from"]),
        (["--model-file", tmp_path / "none.pt"], ["none.pt cannot be read as TorchScript"]),
        (["--model-file", tmp_path / "empty.pt"], ["no parameters"]),
        (["--model-file", tmp_path / "seven.pt"], ["2x7 scores for 2 images of 10 classes"]),
        (["--model-file", tmp_path / "net.pt", "--input-size", "16"], ["3x16x16", "--input-size"]),
        (["--model-file", tmp_path / "net.pt", "--model", "resnet18"], ["leave out --model resnet18"]),
        (["--model-file", tmp_path / "net.pt", "--pipeline", "2"], ["--pipeline 2 is more than the 1 parts"]),
        (["--model", "torchscript"], ["needs --model-file"]),
    ]:
        done = run([TRAIN, *SHORT, "--max-steps", "1", "--output-dir", tmp_path / "out", *settings])
        # The opening line goes to standard output.
        assert_one_sentence(done, 2, *words)
