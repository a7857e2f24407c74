# SPDX-License-Identifier: Apache-2.0
"""The same training in C++ under ddprun and in Python under torchrun ends in the same parameters and buffers."""

import pathlib
import sys
from dataclasses import dataclass

import pytest
from conftest import DDPRUN, clean_environment, run, torchrun_standalone

HERE = pathlib.Path(__file__).resolve().parent


@dataclass(frozen=True)
class Training:
    flags: str
    model: str = "netresdeep"
    batch_size: int = 16
    lr: str = "0.005"
    steps: int = 20
    tolerance: str = "1e-5"
    nightly: bool = False

    def recipe(self):
        return (
            ["--model", self.model, "--dataset", "fashion-mnist", "--batch-size", str(self.batch_size), "--seed", "7"]
            + ["--lr", self.lr, "--momentum", "0.9", "--weight-decay", "0.0005", "--no-augment", "--no-eval", *self.flags.split()]
        )


TRAININGS = {
    "netresdeep-shared": Training("--shared-blocks", batch_size=32, nightly=True),
    "netresdeep": Training("", batch_size=32, nightly=True),
    "resnet18": Training("", model="resnet18", batch_size=34, nightly=True),
    "nesterov": Training("--nesterov --label-smoothing 0.1 --schedule one-cycle", lr="0.01"),
    # Without AdamW, which turns the last bit of the norm (summed in doubles here) into a step where gradients are small.
    "clip": Training("--clip-norm 0.5 --schedule linear --warmup-steps 4", nightly=True),
    "adamw": Training("--optimizer adamw --schedule linear --warmup-steps 4", lr="0.001"),
    "adam": Training("--optimizer adam", lr="0.001", nightly=True),
    "accumulate": Training("--accumulate 3 --ema-decay 0.9 --schedule constant"),
    "planes": Training("--no-channels-last", nightly=True),
    # Roundings of bf16 are of a hundredth; a step that forgot the cast, or cast the weights, would be far away.
    "mixed-precision": Training("--amp bf16", tolerance="2e-3", nightly=True),
}


def compare(top, trainings):
    """What Python says of each training, by its name. One torchrun for all: most of the time of one is importing torch."""
    env = clean_environment(OMP_NUM_THREADS="1")
    python = []
    for name, training in trainings.items():
        for length, folder in ((0, "initial"), (training.steps, "final")):
            done = run(
                [DDPRUN, "--standalone", "--nproc-per-node", "2", "train", *training.recipe()]
                + ["--epochs", "1", "--max-steps", str(length), "--output-dir", top / name / folder],
                timeout=400,
                env=env,
            )
            assert done.returncode == 0, done.stderr
        python += ["--", *training.recipe(), "--steps", str(training.steps), "--tolerance", training.tolerance]
        for folder, flag in (("initial", "--init"), ("final", "--final")):
            python += [flag, top / name / folder / "cifar_net.pth"]
    done = run([*torchrun_standalone(), "--nproc-per-node", "2", HERE / "parity_ddp.py", *python], timeout=600, env=env)
    print(done.stdout, file=sys.stderr)
    said = {}
    for line in done.stdout.splitlines():
        file, _, words = line.partition(": ")
        said[pathlib.Path(file).parent.parent.name] = words
    assert said.keys() >= trainings.keys(), done.stdout + done.stderr
    assert (done.returncode == 0) == all(words.startswith("equal: ") for words in said.values()), done.stderr
    return said


@pytest.fixture(scope="module")
def compared(tmp_path_factory, request):
    names = {item.callspec.params["name"] for item in request.session.items if "compared" in item.fixturenames}
    return compare(tmp_path_factory.mktemp("parity"), {name: TRAININGS[name] for name in TRAININGS if name in names})


MARKED = [pytest.param(name, marks=[pytest.mark.nightly] if training.nightly else []) for name, training in TRAININGS.items()]


@pytest.mark.parametrize("name", MARKED)
def test_python_ends_in_the_same_numbers(compared, name):
    assert compared[name].startswith("equal: "), compared[name]
