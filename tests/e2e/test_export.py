# SPDX-License-Identifier: Apache-2.0
"""`train eval` and `train export`: real torch and transformers open what was written and give the same logits; and
the way back, a model that transformers wrote to start from."""

import json
import os
import re
import tempfile

import numpy
import pytest
import safetensors.torch
import torch
from conftest import BUILD, DDPRUN, TRAIN, run
from PIL import Image
from python_models import make_model
from test_bad_input import assert_one_sentence
from test_data import make_image_folder

# Read when transformers is imported: no test asks a network, nor leaves modules in the home of whoever runs it.
MODULES = tempfile.TemporaryDirectory()
os.environ.update(HF_HUB_OFFLINE="1", HF_MODULES_CACHE=MODULES.name)

import transformers  # noqa: E402

MODELS = [
    ("linear", []),
    ("simple-cnn", []),
    ("netresdeep", []),
    ("netresdeep", ["--shared-blocks"]),
    ("airbench", []),
    ("resnet18", []),
    ("resnet50", []),
    ("resnet18", ["--stem", "imagenet"]),
]
NIGHTLY = [("resnet34", []), ("resnet34", ["--stem", "imagenet"]), ("resnet50", ["--stem", "imagenet"])]


def name_of(model, flags):
    return " ".join([model, *flags])


def models():
    return [
        pytest.param(*one, id=name_of(*one), marks=[pytest.mark.nightly] if one in NIGHTLY else [])
        for one in [*MODELS, *NIGHTLY]
    ]


def train(folder, model, flags, *more):
    done = run(
        [TRAIN, "--model", model, *flags, "--dataset", "synthetic", "--batch-size", "4", "--max-steps", "2"]
        + ["--lr", "0.001", "--no-eval", "--output-dir", folder, *more],
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return folder / ("model.pth" if "imagefolder" in more + tuple(flags) else "cifar_net.pth")


def export(model_file, form, output, *flags):
    done = run([TRAIN, "export", model_file, "--format", form, "--output", output, *flags], timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def own_logits(folder, model, flags, model_file, images):
    """What the C++ model gives."""
    images.numpy().tofile(folder / "images.f32")
    done = run(
        [BUILD / "tests" / "logits_probe", model, "shared" if "--shared-blocks" in flags else "unshared", model_file]
        + [folder / "images.f32", folder / "logits.f32", "imagenet" if "imagenet" in flags else "cifar"]
    )
    assert done.returncode == 0, done.stderr
    return numpy.fromfile(folder / "logits.f32", dtype=numpy.float32).reshape(len(images), -1)


def assert_same(logits, expected):
    assert logits.shape == expected.shape
    assert numpy.abs(logits - expected).max() < 1e-4
    assert numpy.abs(expected).max() > 1e-3  # not equal for being empty


def some_images(count=8):
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(3))


def open_with_transformers(folder, **options):
    """The model as transformers sees the folder, and what its image processor makes of a picture of 32x32."""
    model, info = transformers.AutoModelForImageClassification.from_pretrained(
        folder, output_loading_info=True, **options
    )
    assert not any(info.values()), info
    processor = transformers.AutoImageProcessor.from_pretrained(folder, **options)
    picture = numpy.arange(32 * 32 * 3, dtype=numpy.uint8).reshape(32, 32, 3)
    return model.eval(), processor(Image.fromarray(picture), return_tensors="pt")["pixel_values"]


@pytest.mark.parametrize(("model", "flags"), models())
def test_every_format_gives_the_same_logits_in_python(tmp_path, model, flags):
    saved = train(tmp_path, model, flags)
    settings = ["--model", model, *flags, "--dataset", "synthetic"]
    expected = own_logits(tmp_path, model, flags, saved, some_images())

    export(saved, "pth", tmp_path / "state.pth", *settings)
    stem = "imagenet" if "imagenet" in flags else "cifar"
    in_python = make_model(model, shared_blocks="--shared-blocks" in flags, stem=stem)
    in_python.load_state_dict(torch.load(tmp_path / "state.pth"))  # both with their defaults
    in_python.eval()
    with torch.no_grad():
        assert_same(in_python(some_images()).numpy(), expected)

    export(saved, "torchscript", tmp_path / "model.pt", *settings)
    script = torch.jit.load(str(tmp_path / "model.pt"))
    with torch.no_grad():
        assert_same(script(some_images()).numpy(), expected)
        assert script(some_images(1)).shape == (1, 10)  # any number of images
    assert {name for name, _ in script.named_parameters()} <= set(in_python.state_dict())

    said = export(saved, "hf", tmp_path / "hf", *settings)
    own = stem == "imagenet"
    assert ("trust_remote_code=True" in said) == (not own)
    options = {} if own else {"trust_remote_code": True}
    model, pixels = open_with_transformers(tmp_path / "hf", **options)
    with torch.no_grad():
        assert_same(model(pixel_values=some_images()).logits.numpy(), expected)
        labels = torch.arange(8)
        loss = torch.nn.functional.cross_entropy(torch.as_tensor(expected), labels)
        torch.testing.assert_close(model(some_images(), labels=labels).loss, loss, rtol=1e-3, atol=1e-4)
    assert type(model).__name__ == ("ResNetForImageClassification" if own else "DdprunForImageClassification")
    assert type(model).__module__.startswith("transformers.models.resnet") == own
    assert pixels.shape == (1, 3, 32, 32) and pixels.min() < -0.5 and pixels.max() > 0.5  # normalised, not resized


def transformers_resnet(folder, layer_type, depths, hidden_sizes, classes):
    torch.manual_seed(5)
    config = transformers.ResNetConfig(
        layer_type=layer_type, depths=depths, hidden_sizes=hidden_sizes, embedding_size=64, num_labels=classes
    )
    model = transformers.ResNetForImageClassification(config)
    with torch.no_grad():
        for module in model.modules():  # statistics as of a model that has seen something
            if isinstance(module, torch.nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.1)
                module.running_var.uniform_(0.8, 1.2)
    model.save_pretrained(folder)
    return model.eval()


@pytest.mark.parametrize(
    ("name", "layer_type", "depths", "hidden_sizes"),
    [
        ("resnet18", "basic", [2, 2, 2, 2], [64, 128, 256, 512]),
        ("resnet50", "bottleneck", [3, 4, 6, 3], [256, 512, 1024, 2048]),
    ],
)
def test_a_resnet_of_transformers_is_what_a_training_starts_from(tmp_path, name, layer_type, depths, hidden_sizes):
    model = transformers_resnet(tmp_path / "theirs", layer_type, depths, hidden_sizes, classes=10)
    flags = ["--stem", "imagenet"]
    start = ["--init-from", tmp_path / "theirs", "--max-steps", "0"]
    saved = train(tmp_path, name, flags, *start)
    with torch.no_grad():
        expected = model(pixel_values=some_images()).logits.numpy()
    assert_same(own_logits(tmp_path, name, flags, saved, some_images()), expected)


def test_an_export_is_what_a_training_starts_from(tmp_path):
    saved = train(tmp_path, "netresdeep", [])
    export(saved, "hf", tmp_path / "hf", "--model", "netresdeep", "--dataset", "synthetic")
    again = train(tmp_path / "again", "netresdeep", [], "--init-from", tmp_path / "hf", "--max-steps", "0")
    before, after = torch.load(saved), torch.load(again)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_head_of_other_classes_is_left_out_and_said_so(tmp_path):
    model = transformers_resnet(tmp_path / "theirs", "basic", [2, 2, 2, 2], [64, 128, 256, 512], classes=7)
    done = run(
        [DDPRUN, "--standalone", "--nproc-per-node", "2", "train", "--model", "resnet18", "--stem", "imagenet"]
        + ["--dataset", "synthetic", "--max-steps", "0", "--no-eval", "--output-dir", tmp_path]
        + ["--init-from", tmp_path / "theirs" / "model.safetensors"],
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    said = "but fc, which is for 7 classes there, from random ones"
    assert done.stdout.count(said) == 1
    assert re.search(r"parameters equal on all ranks", done.stdout)
    state = torch.load(tmp_path / "cifar_net.pth")
    theirs = model.state_dict()["resnet.encoder.stages.0.layers.0.layer.0.convolution.weight"]
    assert torch.equal(state["layer1.0.conv1.weight"], theirs)
    assert state["fc.weight"].shape == (10, 512)


def test_weights_that_do_not_fit_are_named(tmp_path):
    saved = train(tmp_path, "resnet18", [])
    for model, flags, words in [
        ("resnet34", [], ["missing: layer1.2.conv1.weight"]),
        ("resnet18", ["--stem", "imagenet"], ["conv1.weight is [64, 3, 3, 3] instead of [64, 3, 7, 7]", "--stem"]),
        ("simple-cnn", [], ["missing: ", "unexpected: "]),
    ]:
        done = run(
            [TRAIN, "--model", model, *flags, "--dataset", "synthetic", "--max-steps", "0", "--init-from", saved]
            + ["--output-dir", tmp_path / "none"]
        )
        assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
        for word in [str(saved), *words]:
            assert word in done.stderr
    done = run([TRAIN, "--dataset", "synthetic", "--init-from", tmp_path / "nowhere", "--output-dir", tmp_path])
    assert done.returncode == 1 and "nowhere is not there" in done.stderr


def test_a_bottleneck_with_its_stride_elsewhere_is_refused(tmp_path):
    transformers_resnet(tmp_path / "theirs", "bottleneck", [3, 4, 6, 3], [256, 512, 1024, 2048], classes=10)
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    config["downsample_in_bottleneck"] = True
    (tmp_path / "theirs" / "config.json").write_text(json.dumps(config))
    done = run(
        [TRAIN, "--model", "resnet50", "--stem", "imagenet", "--dataset", "synthetic", "--max-steps", "0"]
        + ["--init-from", tmp_path / "theirs", "--output-dir", tmp_path]
    )
    assert done.returncode == 1 and "downsample_in_bottleneck is true" in done.stderr


def test_eval_gives_the_trainings_own_accuracy_on_any_number_of_ranks(tmp_path):
    done = run(
        [TRAIN, "--model", "simple-cnn", "--dataset", "synthetic", "--samples", "512", "--batch-size", "16"]
        + ["--output-dir", tmp_path]
    )
    assert done.returncode == 0, done.stderr
    expected = re.search(r"test accuracy +(\S+ % \(\d+ of \d+ images)", done.stdout)[1]
    question = ["eval", tmp_path / "cifar_net.pth", "--model", "simple-cnn", "--dataset", "synthetic"]
    question += ["--samples", "512"]
    for command in [[TRAIN], [DDPRUN, "--standalone", "--nproc-per-node", "2", "train"]]:
        done = run([*command, *question])
        assert done.returncode == 0, done.stderr
        assert len(re.findall(rf"test accuracy +{re.escape(expected)}", done.stdout)) == 1, done.stdout


def test_a_checkpoint_says_itself_what_it_is_of_and_the_average_is_what_is_taken(tmp_path):
    train(tmp_path, "simple-cnn", [], "--checkpoint-every", "1", "--ema-decay", "0.9", "--lr", "0.1")
    checkpoints = tmp_path / "checkpoints"
    newest = max(checkpoints.glob("*.safetensors"))
    tensors = safetensors.torch.load_file(newest)
    for flags, prefix in [([], "ema/"), (["--no-ema"], "model/")]:
        said = export(checkpoints, "pth", tmp_path / "state.pth", *flags)  # the folder: its newest
        assert f"{newest} (step 2" in said and ("moving average" in said) == (not flags)
        state = torch.load(tmp_path / "state.pth")
        for name in make_model("simple-cnn").state_dict():
            assert torch.equal(state[name], tensors[prefix + name]), name
    assert not torch.equal(tensors["ema/conv1.weight"], tensors["model/conv1.weight"])
    done = run([TRAIN, "eval", newest])
    assert done.returncode == 0, done.stderr
    assert re.search(r"test accuracy +\S+ % \(\d+ of 1024 images", done.stdout)
    done = run([TRAIN, "eval", newest, "--num-classes", "4"])
    assert done.returncode == 2 and "4 classes; choose the data set it was trained on" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["export", "none.pth", "--format", "pth", "--output", "x.pth"], ["none.pth is not there"]),
        (["export", "{saved}", "--format", "onnx", "--output", "x"], ["--format", "pth", "train export --help"]),
        (["export", "{saved}", "--output", "x"], ["--format is required"]),
        (["export", "{saved}", "--format", "hf", "--output", "/proc/none", "--dataset", "synthetic"], ["/proc/none"]),
        (
            ["export", "{saved}", "--format", "pth", "--output", "x", "--model", "resnet18", "--dataset", "synthetic"],
            ["does not fit the model", "missing"],
        ),
        (["eval", "{saved}", "--dataset", "synthetic", "--model", "resnet19"], ["resnet19", "resnet18"]),
        (["eval"], ["model is required", "train eval --help"]),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(tmp_path, arguments, words):
    saved = tmp_path / "cifar_net.pth"
    torch.save(make_model("netresdeep").state_dict(), saved)
    done = run([TRAIN, *(word.format(saved=saved) for word in arguments)], cwd=tmp_path)
    assert done.returncode in (1, 2) and len(done.stderr.splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr


def test_synchronised_batch_norm_makes_two_ranks_train_as_one(tmp_path):
    """The same samples in the same steps: what is left is rounding. Without the flag the models part."""
    recipe = ["--model", "netresdeep", "--dataset", "synthetic", "--max-steps", "3", "--lr", "0.01", "--no-augment"]
    recipe += ["--no-eval", "--warmup-steps", "0"]
    two = [DDPRUN, "--standalone", "--nproc-per-node", "2", "train", *recipe, "--batch-size", "8"]
    models = {}
    for name, command in {
        "alone": [TRAIN, *recipe, "--batch-size", "16"],
        "synchronised": [*two, "--sync-batch-norm"],
        "apart": two,
    }.items():
        done = run([*command, "--output-dir", tmp_path / name], timeout=300)
        assert done.returncode == 0, done.stderr
        models[name] = torch.load(tmp_path / name / "cifar_net.pth")

    def difference(name):
        pairs = ((models["alone"][key].double(), models[name][key].double()) for key in models[name])
        return max((one - other).abs().max().item() for one, other in pairs)

    assert difference("synchronised") < 1e-4
    assert difference("apart") > 1e-3


def test_an_averaged_block_that_is_used_ten_times_is_averaged_in_all_ten_places(tmp_path):
    more = ["--checkpoint-every", "2", "--ema-decay", "0.9", "--lr", "0.1", "--warmup-steps", "0"]
    written = torch.load(train(tmp_path, "netresdeep", ["--shared-blocks"], *more))
    export(tmp_path / "checkpoints", "pth", tmp_path / "state.pth")
    state = torch.load(tmp_path / "state.pth")
    assert all(torch.equal(state[name], written[name]) for name in written)


def test_ten_different_blocks_are_no_shared_block(tmp_path):
    saved = train(tmp_path, "netresdeep", [])
    done = run([TRAIN, "eval", saved, "--shared-blocks"])
    assert_one_sentence(done, 1, "resblocks.0.* and resblocks.1.* differ there", "leave out --shared-blocks")


def test_a_shared_block_can_be_saved_again_in_python(tmp_path):
    saved = train(tmp_path, "netresdeep", ["--shared-blocks"])
    export(saved, "hf", tmp_path / "hf")
    model = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "hf", trust_remote_code=True)
    with torch.no_grad():
        model.model.fc2.weight.add_(1)
    model.save_pretrained(tmp_path / "again")
    again, info = transformers.AutoModelForImageClassification.from_pretrained(
        tmp_path / "again", trust_remote_code=True, output_loading_info=True
    )
    assert not any(info.values()), info
    with torch.no_grad():
        assert_same(again.eval()(some_images()).logits.numpy(), model.eval()(some_images()).logits.numpy())
    back = train(tmp_path / "back", "netresdeep", ["--shared-blocks"], "--init-from", tmp_path / "again", "--max-steps", 0)
    assert torch.equal(torch.load(back)["fc2.weight"], model.model.fc2.weight)


def test_what_a_model_is_for_is_written_beside_it(tmp_path):
    """The settings, the classes and the normalisation: no later command needs to be told them, nor the data."""
    make_image_folder(tmp_path / "data")
    flags = ["--dataset", "imagefolder", "--data-dir", tmp_path / "data", "--input-size", "36"]
    saved = train(tmp_path, "netresdeep", ["--shared-blocks"], *flags)
    described = json.loads((tmp_path / "model.pth.json").read_text())
    assert described["settings"]["model"] == "netresdeep" and described["settings"]["shared-blocks"] == "true"
    data = described["data"]
    assert (data["channels"], data["height"], data["width"], data["classes"]) == (3, 36, 36, 2)
    assert data["class_names"] == ["cat", "dog"]
    assert data["mean"] == pytest.approx([0.485, 0.456, 0.406]) and data["std"] == pytest.approx([0.229, 0.224, 0.225])
    done = run([TRAIN, "eval", saved])
    assert done.returncode == 0 and "of 16 images" in done.stdout, done
    (tmp_path / "data").rename(tmp_path / "gone")
    for form, output in (("pth", "state.pth"), ("torchscript", "model.pt")):
        export(saved, form, tmp_path / output)
        assert json.loads((tmp_path / f"{output}.json").read_text())["data"] == data
    export(tmp_path / "state.pth", "hf", tmp_path / "hf")
    config = transformers.AutoConfig.from_pretrained(tmp_path / "hf", trust_remote_code=True)
    assert config.id2label == {0: "cat", 1: "dog"} and config.label2id == {"cat": 0, "dog": 1}


@pytest.mark.parametrize("side", [160, 224, 384])
def test_the_image_processor_shows_the_view_of_the_evaluation(tmp_path, side):
    """The loss of `train eval` is that of transformers on the same files. There are odd margins among them, and a picture
    that is made larger."""
    numbers = numpy.random.RandomState(1)
    pictures = []
    for label, (height, width) in enumerate([(500, 333), (427, 640), (513, 768), (100, 120)]):
        blocks = numbers.randint(0, 256, (height // 12 + 1, width // 12 + 1, 3)).astype(numpy.uint8)
        pictures.append(Image.fromarray(blocks.repeat(12, axis=0).repeat(12, axis=1)[:height, :width]))
        for part in ("train", "val"):
            folder = tmp_path / "data" / part / str(label)
            folder.mkdir(parents=True)
            pictures[-1].save(folder / "only.png")
    more = ["--dataset", "imagefolder", "--data-dir", tmp_path / "data", "--input-size", side, "--max-steps", "0"]
    saved = train(tmp_path, "linear", [], *more)
    done = run([TRAIN, "eval", saved])
    assert done.returncode == 0, done.stderr
    export(saved, "hf", tmp_path / "hf")
    model, _ = open_with_transformers(tmp_path / "hf", trust_remote_code=True)
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "hf")
    with torch.no_grad():
        loss = model(**processor(pictures, return_tensors="pt"), labels=torch.arange(4)).loss.item()
    assert float(re.search(r"test loss +(\S+)", done.stdout)[1]) == pytest.approx(loss, abs=1e-3)


def test_a_description_of_other_weights_is_passed_over(tmp_path):
    saved = train(tmp_path, "simple-cnn", [])
    torch.save(make_model("netresdeep").state_dict(), saved)
    settings = ["--format", "pth", "--output", tmp_path / "x.pth"]
    done = run([TRAIN, "export", saved, *settings, "--model", "netresdeep", "--dataset", "synthetic"])
    assert done.returncode == 0, done.stderr
    assert "cifar_net.pth.json is of other weights; it is passed over" in done.stderr
    (tmp_path / "cifar_net.pth.json").write_text("{")
    done = run([TRAIN, "export", saved, *settings, "--dataset", "idx", "--data-dir", tmp_path / "none"])
    assert done.returncode == 1 and "does not say which images it is for" in done.stderr


@pytest.mark.parametrize(
    ("dataset", "names"),
    [
        ("fashion-mnist", ["T-shirt/top", "Trouser"]),
        ("synthetic", ["LABEL_0", "LABEL_1"]),
    ],
)
def test_class_names_of_data_sets(tmp_path, dataset, names):
    done = run([TRAIN, "--model", "simple-cnn", "--dataset", dataset, "--max-steps", "0", "--no-eval"]
               + ["--checkpoint-dir", tmp_path / "checkpoints", "--output-dir", tmp_path])
    assert done.returncode == 0, done.stderr
    for source in ("cifar_net.pth", "checkpoints"):
        export(tmp_path / source, "hf", tmp_path / "hf")
        labels = json.loads((tmp_path / "hf" / "config.json").read_text())["id2label"]
        assert [labels["0"], labels["1"]] == names


def test_eval_computes_in_the_precision_that_it_is_told(tmp_path):
    saved = train(tmp_path, "netresdeep", ["--amp", "bf16"], "--samples", "64")

    def loss(*settings):
        done = run([TRAIN, "eval", saved, *settings])
        assert done.returncode == 0, done.stderr
        return re.search(r"test loss +(\S+)", done.stdout)[1]

    assert loss() == loss("--amp", "bf16") != loss("--amp", "off")
