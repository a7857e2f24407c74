# SPDX-License-Identifier: Apache-2.0
"""One wheel for every torch that deploy/common.sh names, and its own venv for each: two ranks train, a C++ program is built upon the
library, and the oldest and the newest go on with each other's checkpoints."""

import json
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest
from conftest import REPO, TORCHES, TRAIN, clean_environment, run
from torch_versions import CACHE

SIZE_MAX = 80 << 20
STEPS = 20
WORK = ["--model", "simple-cnn", "--dataset", "synthetic", "--samples", "512", "--batch-size", "16", "--no-eval", "--log-every", "1",
        "--schedule", "constant", "--warmup-epochs", "0"]

pytestmark = pytest.mark.skipif(not os.path.exists(TRAIN), reason="built without LibTorch")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    done = run([REPO / "deploy" / "wheel.sh", "--output", tmp_path_factory.mktemp("wheel"), "every-torch"], timeout=4 * 3600)
    assert done.returncode == 0, done.stderr
    return pathlib.Path(done.stdout.strip().splitlines()[-1])


@pytest.fixture(scope="module")
def venvs(wheel, tmp_path_factory):
    """{version: its venv}, with torch and what that needs from the cache, where setup.sh has put it."""
    made = {}
    for version in TORCHES:
        folder = made[version] = tmp_path_factory.mktemp("venv") / version
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=120)
        (packages,) = folder.glob("lib/python3*/site-packages")
        (cached,) = (CACHE / f"torch-{version}").glob("lib/python3*/site-packages")
        for name in ("torch", "nvidia"):
            (packages / name).symlink_to(cached / name)
        (packages / "others.pth").write_text(f"{cached}\n")
        done = run([folder / "bin" / "python", "-m", "pip", "install", "-q", "--no-index", "--no-deps", wheel])
        assert done.returncode == 0, done.stderr
    return made


def call(venv, *command, **options):
    env = clean_environment(PATH=f"{venv}/bin:/usr/bin:/bin", OMP_NUM_THREADS="1")
    done = run(command, env=env, timeout=600, **options)
    assert done.returncode == 0, done.stderr
    return done


def train(venv, folder, *flags):
    return call(venv, "ddprun", "--standalone", "--nproc-per-node", 2, "train", *WORK, "--output-dir", folder, *flags)


def tensors(path):
    """{name: float32 numbers} of the model in a checkpoint."""
    numpy = pytest.importorskip("numpy")
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    entries, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    return {name: numpy.frombuffer(body[slice(*entry["data_offsets"])], numpy.float32)
            for name, entry in entries.items() if name.startswith("model/") and entry["dtype"] == "F32"}


def test_the_wheel_has_a_train_and_a_library_for_each_version(wheel):
    assert wheel.stat().st_size <= SIZE_MAX
    names = zipfile.ZipFile(wheel).namelist()
    for version in TORCHES:
        minor = version.rpartition(".")[0]
        assert {f"ddprun/bin/torch-{minor}/train", f"ddprun/lib/ddprun/torch-{minor}/libddprun.a"} <= set(names)


@pytest.mark.parametrize("version", TORCHES)
def test_two_ranks_train(venvs, version, tmp_path):
    done = train(venvs[version], tmp_path / "out", "--max-steps", 4)
    assert len(re.findall(r"batch \d+/\d+ loss", done.stdout)) == 8, done.stdout
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["world_size"] == 2


@pytest.mark.parametrize("version", TORCHES)
def test_a_program_is_built_upon_the_library(venvs, version, tmp_path):
    venv = venvs[version]
    prefix = call(venv, "python", "-c", "import ddprun; print(ddprun.cmake_prefix_path)").stdout.strip()
    flags = [f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Release"]
    call(venv, "cmake", "-S", REPO / "worker" / "examples" / "pipeline", "-B", tmp_path, *flags)
    call(venv, "cmake", "--build", tmp_path)
    done = call(venv, "ddprun", "--standalone", "--nproc-per-node", 3, tmp_path / "pipeline", 100)
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", done.stdout)]
    assert losses and losses[-1] < losses[0], done.stdout


@pytest.mark.parametrize(("first", "second"), [(TORCHES[0], TORCHES[-1]), (TORCHES[-1], TORCHES[0])])
def test_one_version_goes_on_with_the_others_checkpoint(venvs, first, second, tmp_path):
    """The same bits, or nearly: a version may add in another order."""
    saving = ["--checkpoint-every", STEPS // 2, "--max-steps", STEPS]
    train(venvs[second], tmp_path / "alone", *saving)
    train(venvs[first], tmp_path / "both", "--checkpoint-every", STEPS // 2, "--max-steps", STEPS // 2)
    train(venvs[second], tmp_path / "both", *saving, "--resume", "auto")
    name = f"checkpoints/step-{STEPS:09}.safetensors"
    alone, both = tensors(tmp_path / "alone" / name), tensors(tmp_path / "both" / name)
    assert len(alone) == 10 and alone.keys() == both.keys()
    assert max(abs(alone[one] - both[one]).max() for one in alone) <= 1e-6
