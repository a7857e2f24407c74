# SPDX-License-Identifier: Apache-2.0
"""Folders of images as people have them: which files of which folders are read, and what is said of the others."""

import re

import numpy
import pytest
from conftest import TRAIN, run
from PIL import Image
from test_data import make_image_folder, sentence

READ = ("jpg", "jpeg", "png", "ppm", "pgm", "pnm", "bmp")  # as DATA.md has it
PASSED_OVER = ("gif", "tif", "tiff", "webp", "pbm")
SETTINGS = ["--dataset", "imagefolder", "--input-size", 32, "--batch-size", 4, "--model", "linear", "--max-steps", 2]


def train(data, *more):
    return run([TRAIN, *SETTINGS, "--data-dir", data, "--output-dir", data.parent / "o", *more])


def save(path, seed):
    pixels = numpy.random.RandomState(seed).randint(0, 256, (40, 36, 3)).astype(numpy.uint8)
    grey = {".pgm": "L", ".pbm": "1"}.get(path.suffix.lower(), "RGB")
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).convert(grey).save(path, format={".pnm": "PPM"}.get(path.suffix.lower()))


def sizes(output):
    """Training and test images."""
    return tuple(map(int, re.search(r"imagefolder: (\d+) training and (\d+) test images", output).groups()))


def test_files_of_each_kind_are_read_or_counted(tmp_path):
    data = tmp_path / "data"
    for part in ("train", "val"):
        for label in ("cat", "dog"):
            for seed, ending in enumerate((*READ, *PASSED_OVER)):
                save(data / part / label / f"{ending}.{ending}", seed)
    save(data / "train" / "cat" / "UPPER.JPG", 99)
    (data / "train" / "cat" / "notes").write_text("no image")
    (data / "train" / "cat" / ".hidden.webp").write_text("not seen")
    note = (
        "21 files are passed over, being no .jpg, .jpeg, .png, .ppm, .pgm, .pnm or .bmp: 4 .gif, 4 .pbm, 4 .tif, 4 .tiff, "
        f"4 .webp, 1 more kind (the first: {data}/train/cat/gif.gif)"
    )
    done = train(data, "--checkpoint-dir", tmp_path / "c")
    assert done.returncode == 0, done.stderr
    assert sizes(done.stdout) == (2 * len(READ) + 1, 2 * len(READ))
    assert done.stdout.count("passed over") == 1 and note in done.stdout
    done = run([TRAIN, "eval", tmp_path / "c", "--data-dir", data])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("passed over") == 1 and note in done.stdout and f"of {2 * len(READ)} images" in done.stdout


def test_a_file_of_another_kind_than_its_name_says_is_named_for_what_it_is(tmp_path):
    make_image_folder(tmp_path / "data")
    for kind, name in (("WEBP", "a WebP image"), ("GIF", "a GIF image"), ("TIFF", "a TIFF image")):
        victim = tmp_path / "data" / "train" / "dog" / "3.png"
        Image.new("RGB", (8, 8)).save(victim, kind)
        said = sentence(train(tmp_path / "data", "--epochs", 1, "--max-steps", 9), 1)
        assert f"{victim}: is {name}, but must be JPEG, PNG, PPM, PGM or BMP; convert it to JPEG or PNG" in said


def test_images_in_folders_below_a_class_are_its_images(tmp_path):
    """Tiny ImageNet: train/CLASS/images/*.JPEG beside a list of boxes, and val/images/ with a list of classes."""
    data = tmp_path / "data"
    for label in ("n01443537", "n01629819"):
        for i in range(5):
            save(data / "train" / label / "images" / f"{label}_{i}.JPEG", i)
        (data / "train" / label / f"{label}_boxes.txt").write_text("0 0 9 9\n")
    for i in range(4):
        save(data / "val" / "images" / f"val_{i}.JPEG", i)
    lines = [f"val_{i}.JPEG\t{('n01443537', 'n01629819')[i % 2]}\t0\t0\t9\t9\n" for i in range(4)]
    (data / "val" / "val_annotations.txt").write_text("".join(lines))
    save(data / "test" / "images" / "test_0.JPEG", 1)  # whose class nobody knows
    done = train(data)
    assert done.returncode == 0, done.stderr
    assert sizes(done.stdout) == (10, 4)
    assert "2 files are passed over" in done.stdout and "2 .txt" in done.stdout
    # Images beside the folders, too: all are trained with, or none.
    save(data / "train" / "n01443537" / "more.png", 1)
    assert sizes(train(data).stdout) == (11, 4)


@pytest.mark.parametrize("how", ["no folder", "an empty folder"])
def test_a_class_may_have_no_test_images(tmp_path, how):
    data = tmp_path / "data"
    make_image_folder(data, of_each=4)
    for file in (data / "val" / "dog").iterdir():
        file.unlink()
    if how == "no folder":
        (data / "val" / "dog").rmdir()
    done = train(data)
    assert done.returncode == 0, done.stderr
    assert f"class dog has no test images in {data}/val; the test accuracy is that of the others" in done.stdout
    assert sizes(done.stdout) == (8, 4)
    # The advice for a class without training images leads out as well.
    for file in (data / "train" / "dog").iterdir():
        file.unlink()
    said = sentence(train(data), 1)
    assert "train/dog: has no .jpg" in said and "or remove the folder here and in the test images" in said
    for i in range(2):
        save(data / "train" / "ape" / f"{i}.png", i)
    (data / "train" / "dog").rmdir()
    assert train(data).returncode == 0


def test_a_photograph_of_100_megapixels_is_read(tmp_path):
    data = tmp_path / "data"
    make_image_folder(data, of_each=2)
    Image.new("RGB", (12_000, 9_000), (9, 99, 199)).save(data / "train" / "cat" / "1.jpg")
    Image.new("RGB", (12_000, 9_000), (9, 99, 199)).save(data / "val" / "cat" / "1.png", compress_level=1)
    done = train(data, "--epochs", 1)
    assert done.returncode == 0, done.stderr
    # More than the memory that an image may take: told with a next move, before it is taken.
    (data / "train" / "dog" / "0.ppm").write_bytes(b"P6 30000 30000 255 few")
    said = sentence(train(data, "--epochs", 1), 1)
    assert "0.ppm: is 30000x30000 pixels, which take 2574 MiB of memory to decode, and at most 1024 MiB" in said
    assert "; make the image smaller, remove the file, or pass --skip-damaged" in said
