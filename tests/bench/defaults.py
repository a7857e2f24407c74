# SPDX-License-Identifier: Apache-2.0
"""How well does `train` train with all of its defaults, and is the model that it writes the one that it trained? Beside
the accuracy with the running statistics, which is the model's, stands that with the statistics of each test batch.

    tests/bench/defaults.py [--build build] [--dataset fashion-mnist|stand-in] [--json FILE] [-- SETTING...]

Ends with 1 if the accuracy is below --least, or lies more than --gap points below that of batch statistics.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
sys.path.insert(0, str(HERE.parent / "testing"))
import cifar_stand_in  # noqa: E402
from parity_ddp import read_idx  # noqa: E402
from python_models import make_model  # noqa: E402

DEADLINE_S = 6 * 3600
BATCH = 250
FASHION_MNIST = "/usr/share/datasets/fashion-mnist"


def normalised(images, mean, deviation):
    shape = (1, 3, 1, 1)
    return (images.float() / 255 - torch.tensor(mean).view(shape)) / torch.tensor(deviation).view(shape)


def read_cifar10(folder):
    """The test images as train normalises them, and their labels."""
    records = numpy.fromfile(pathlib.Path(folder) / "cifar-10-batches-bin" / "test_batch.bin", dtype=numpy.uint8)
    records = torch.from_numpy(records.reshape(-1, 3073))
    images = records[:, 1:].reshape(-1, 3, 32, 32)
    return normalised(images, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)), records[:, 0].long()


def read_fashion_mnist():
    images = F.pad(read_idx(FASHION_MNIST, "t10k-images-idx3-ubyte"), (2, 2, 2, 2)).unsqueeze(1).expand(-1, 3, 32, 32)
    return normalised(images, (0.2860,) * 3, (0.3530,) * 3), read_idx(FASHION_MNIST, "t10k-labels-idx1-ubyte").long()


@torch.no_grad()
def accuracies(model_file, images, labels, shared_blocks=False):
    """With the running statistics of the model, and with those of each batch."""
    model = make_model("netresdeep", shared_blocks=shared_blocks)
    model.load_state_dict(torch.load(model_file))
    model.eval()

    def accuracy():
        batches = zip(images.split(BATCH), labels.split(BATCH))
        return sum(int((model(batch).argmax(1) == right).sum()) for batch, right in batches) / len(labels)

    running = accuracy()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.train()
            module.momentum = 0.0
    return running, accuracy()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parents[1] / "build")
    parser.add_argument("--dataset", choices=["fashion-mnist", "stand-in"], default="fashion-mnist")
    parser.add_argument("--least", type=float, default=85, help="per cent")
    parser.add_argument("--gap", type=float, default=1, help="points")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("settings", nargs="*", help="of train, to see what another default would do")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.dataset == "stand-in":
            cifar_stand_in.write(folder)
            data, (images, labels) = ["--data-dir", folder], read_cifar10(folder)
        else:
            data, (images, labels) = ["--dataset", "fashion-mnist"], read_fashion_mnist()
        command = [options.build / "bin/train", *data, "--output-dir", folder, *options.settings]
        env = {"OMP_NUM_THREADS": "1", **os.environ}
        subprocess.run([str(word) for word in command], env=env, check=True, timeout=DEADLINE_S)
        shared = "--shared-blocks" in options.settings
        running, batch = accuracies(pathlib.Path(folder) / "cifar_net.pth", images, labels, shared)
    figures = {"dataset": options.dataset, "test_accuracy": 100 * running, "with_batch_statistics": 100 * batch}
    print(json.dumps(figures))
    if options.json:
        options.json.write_text(json.dumps(figures))
    sys.exit(0 if 100 * running >= options.least and running >= batch - options.gap / 100 else 1)


if __name__ == "__main__":
    main()
