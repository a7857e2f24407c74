# SPDX-License-Identifier: Apache-2.0
"""`train plot`: the curves of runs as a picture."""

import json
import math
import os
import re
import subprocess
from xml.etree import ElementTree

import pytest
from PIL import Image

from conftest import TRAIN, run, wait_for

# chart.cc's first two colours.
COLORS = ((31, 119, 180), (255, 127, 14))


def write_run(folder, steps, decay, test_every=20):
    folder.mkdir(parents=True)
    with open(folder / "metrics.jsonl", "w") as file:
        for step in range(1, steps + 1):
            record = {"step": step, "time": 1.7e9 + step, "epoch": step / 50, "loss/train": 2.3 * math.exp(-step * decay)}
            if step % test_every == 0:
                record |= {"loss/test": 2.4 * math.exp(-step * decay), "accuracy/test": 1 - math.exp(-step * decay)}
            file.write(json.dumps(record) + "\n")
    return folder


def plot(*arguments):
    return run([TRAIN, "plot", *arguments])


@pytest.fixture
def runs(tmp_path):
    return [write_run(tmp_path / "slow", 100, 0.01), write_run(tmp_path / "fast", 60, 0.05)]


def strokes(path):
    """(colour, opacity, number of points) of each stroked path that is a curve."""
    found = []
    for element in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}path"):
        style = dict(part.split(":") for part in element.get("style", "").split(";") if part)
        numbers = [round(float(x) * 2.55) for x in re.findall(r"([\d.]+)%", style.get("stroke", ""))]
        points = len(re.findall("[ML]", element.get("d")))
        # The legend's samples have two points; Cairo writes some SVG styles as attributes in newer versions.
        if tuple(numbers) in COLORS and points > 2:
            found.append((tuple(numbers), float(style["stroke-opacity"]), points))
    return sorted(found)


def test_svg_has_one_path_for_each_curve_with_all_its_points(runs, tmp_path):
    ended = plot(*runs, "--output", tmp_path / "curves.svg", "--smoothing", "0")
    assert (ended.returncode, ended.stderr) == (0, "")
    slow, fast = COLORS
    # Loss of training, loss and accuracy of the test.
    assert strokes(tmp_path / "curves.svg") == sorted(
        [(slow, 1, 100), (slow, 1, 5), (slow, 1, 5), (fast, 1, 60), (fast, 1, 3), (fast, 1, 3)]
    )


def test_smoothing_adds_a_curve_and_keeps_the_measured_one_pale(runs, tmp_path):
    assert plot(runs[0], "-o", tmp_path / "curves.svg").returncode == 0
    opacities = sorted(opacity for _, opacity, points in strokes(tmp_path / "curves.svg") if points == 100)
    assert len(opacities) == 2 and opacities[0] < 0.5 and opacities[1] == 1


def test_png_shows_each_run_in_its_colour_in_both_panels(runs, tmp_path):
    assert plot(*runs, "--output", tmp_path / "curves.png", "--width", "1000", "--x", "epoch").returncode == 0
    image = Image.open(tmp_path / "curves.png").convert("RGB")
    assert image.size == (1000, 480)
    for color in COLORS:
        for left, right in ((0, 500), (500, 1000)):
            pixels = image.crop((left, 60, right, 480)).get_flattened_data()
            assert sum(pixel == color for pixel in pixels) > 50, (color, left)
    assert sum(pixel == (255, 255, 255) for pixel in image.get_flattened_data()) > 0.8 * 1000 * 480


def test_a_run_that_has_ended_has_its_confusion_matrix_beside_the_curves(runs, tmp_path):
    names = ["cat", "dog", "a name that is longer than it may be shown"]
    by_class = {"step": 100, "names": names, "confusion": [[8, 2, 0], [0, 5, 5], [0, 0, 9]]}
    (runs[0] / "summary.json").write_text(json.dumps({"by_class": by_class}))
    assert plot(runs[0], "-o", tmp_path / "a.svg", "--smoothing", "0").returncode == 0
    rows = ElementTree.parse(tmp_path / "a.svg").iter("{http://www.w3.org/2000/svg}path")
    styles = [(element.get("style") or "") + (element.get("fill-opacity") or "") for element in rows]
    shares = sorted(float(found[1]) for style in styles if (found := re.search(r"fill-opacity:([\d.]+)", style)) and found[1] != "1")
    assert shares == [0.2, 0.5, 0.5, 0.8]  # of their rows; all of the last row is in one cell
    assert plot(runs[0], "-o", tmp_path / "a.png").returncode == 0
    assert Image.open(tmp_path / "a.png").size == (1680, 480)
    # Two runs side by side have no matrix.
    assert plot(*runs, "-o", tmp_path / "b.png").returncode == 0
    assert Image.open(tmp_path / "b.png").size == (1200, 480)


def test_what_is_wrong_is_one_sentence(runs, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "young").mkdir()
    (tmp_path / "young" / "metrics.jsonl").write_text('{"step":1,"time":1,"learning_rate":0.1}\n')
    for arguments, code, words in (
        ((tmp_path / "empty", "-o", tmp_path / "a.png"), 1, "empty/metrics.jsonl is not there; give the --output-dir"),
        ((tmp_path / "young", "-o", tmp_path / "a.png"), 1, "holds neither losses nor accuracies yet; wait"),
        ((runs[0], "-o", tmp_path / "a.gif"), 2, "a.gif is neither .png nor .svg; name it so"),
        ((runs[0],), 2, "--output is required"),
        (("-o", tmp_path / "a.png"), 2, "RUN is required"),
        ((runs[0], "-o", tmp_path / "no" / "a.png"), 1, f"cannot write {tmp_path}/no/a.png: No such file or directory; choose another --output"),
        ((runs[0], "-o", tmp_path / "no" / "a.svg"), 1, f"cannot write {tmp_path}/no/a.svg: No such file or directory; choose another --output"),
        ((runs[0], "-o", tmp_path / "a.png", "--smoothing", "1"), 2, "--smoothing"),
    ):
        ended = plot(*arguments)
        assert ended.returncode == code, ended
        assert words in ended.stderr and ended.stderr.count("\n") == 1, ended.stderr
        assert not (tmp_path / "a.png").exists()


@pytest.mark.parametrize("name", ["a.png", "a.svg"])
def test_a_fifo_takes_the_picture_if_something_reads_from_it(runs, tmp_path, name):
    os.mkfifo(tmp_path / name)
    ended = plot(runs[0], "-o", tmp_path / name)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1), ended
    assert f"{tmp_path}/{name}: it is a FIFO that nothing reads from; choose another --output" in ended.stderr
    reader = subprocess.Popen(["cat", tmp_path / name], stdout=subprocess.PIPE)
    try:
        wait_for("the picture", lambda: plot(runs[0], "-o", tmp_path / name).returncode == 0)
        picture = reader.communicate(timeout=60)[0]
    finally:
        reader.kill()
        reader.wait()
    assert picture.startswith(b"\x89PNG" if name == "a.png" else b"<?xml"), picture[:10]


def test_help_is_that_of_plot():
    ended = plot("--help")
    assert ended.returncode == 0 and "train plot" in ended.stdout and "--smoothing" in ended.stdout
    assert "plot " in run([TRAIN, "--help"]).stdout
