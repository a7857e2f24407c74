# SPDX-License-Identifier: Apache-2.0
"""Writes images that stand in for CIFAR-10 where it cannot be downloaded: the same binary files, of Fashion-MNIST's
clothes (the package dataset-fashion-mnist) in random colours, each somewhere on a background of its own, with noise.

    tests/testing/cifar_stand_in.py --output DIR [--train 50000] [--test 10000] [--seed 0]
"""

import argparse
import gzip
import pathlib

import numpy

FASHION_MNIST = pathlib.Path("/usr/share/datasets/fashion-mnist")
FOLDER = "cifar-10-batches-bin"
TRAIN_FILES = 5
SIDE, INNER = 32, 28
CHUNK = 1000  # images drawn at once


def read_idx(name, header):
    path = FASHION_MNIST / name
    data = path.read_bytes() if path.exists() else gzip.open(f"{path}.gz").read()
    return numpy.frombuffer(data, numpy.uint8, offset=header)


def read_part(prefix):
    images = read_idx(f"{prefix}-images-idx3-ubyte", 16).reshape(-1, INNER, INNER)
    return images, read_idx(f"{prefix}-labels-idx1-ubyte", 8)


def draw(random, clothes):
    """(count, 3, SIDE, SIDE) bytes."""
    count = len(clothes)

    def uniform(low, high, *shape):
        return random.uniform(low, high, (count, *shape)).astype(numpy.float32)

    cover = numpy.zeros((count, 1, SIDE, SIDE), numpy.float32)
    for image, (top, left), place in zip(clothes, random.integers(SIDE - INNER + 1, size=(count, 2)), cover[:, 0]):
        place[top : top + INNER, left : left + INNER] = image / 255
    # A dark background from one colour to another, bright clothes: the colours do not tell the class.
    y, x = numpy.mgrid[0:SIDE, 0:SIDE].astype(numpy.float32) / SIDE - 0.5
    first, second, slope = uniform(0, 0.3, 3, 1, 1), uniform(0, 0.3, 3, 1, 1), uniform(0, 2 * numpy.pi, 1, 1, 1)
    share = numpy.clip(x * numpy.cos(slope) + y * numpy.sin(slope) + 0.5, 0, 1)
    background = first + (second - first) * share
    images = background + (uniform(0.6, 1, 3, 1, 1) - background) * cover
    images += random.normal(0, 0.05, images.shape)
    return numpy.clip(images * 255, 0, 255).astype(numpy.uint8)


def write_file(path, images, labels, random):
    with path.open("wb") as file:
        for begin in range(0, len(labels), CHUNK):
            chosen = slice(begin, begin + CHUNK)
            pixels = draw(random, images[chosen]).reshape(len(labels[chosen]), -1)
            file.write(numpy.concatenate([labels[chosen, None], pixels], axis=1).tobytes())


def write(folder, train=50000, test=10000, seed=0):
    """Writes the six files below `folder`, as the archive unpacks."""
    target = pathlib.Path(folder) / FOLDER
    target.mkdir(parents=True, exist_ok=True)
    random = numpy.random.default_rng(seed)
    images, labels = read_part("train")
    each = train // TRAIN_FILES
    for number in range(TRAIN_FILES):
        chosen = slice(number * each, (number + 1) * each)
        write_file(target / f"data_batch_{number + 1}.bin", images[chosen], labels[chosen], random)
    images, labels = read_part("t10k")
    write_file(target / "test_batch.bin", images[:test], labels[:test], random)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--train", type=int, default=50000)
    parser.add_argument("--test", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    write(options.output, options.train, options.test, options.seed)


if __name__ == "__main__":
    main()
