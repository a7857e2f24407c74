# SPDX-License-Identifier: Apache-2.0
"""The README's first command, to its end. In CI with a fifth of an epoch; its own one and a half epochs are nightly."""

import re

import pytest
from conftest import REPO, clean_environment, kept_cache, run


def assert_reaches(accuracy_min, *arguments):
    done = run([REPO / "deploy" / "quickstart.sh", *arguments], timeout=1400, env=clean_environment(**kept_cache()))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    for rank in (0, 1):
        assert re.search(rf"^\[{rank}\] epoch \d+/\d+ batch \d+/\d+ loss \d", done.stdout, re.MULTILINE)
    accuracy = float(re.search(r"test accuracy\D+(\d+\.\d+) ?%", done.stdout).group(1))
    print(done.stdout[-1500:])
    assert accuracy >= accuracy_min, done.stdout[-3000:]
    assert (REPO / "build" / "quickstart" / "cifar_net.pth").is_file()


def test_quickstart_learns():
    assert_reaches(72.0, "--epochs", "1", "--max-steps", "188")


@pytest.mark.nightly
def test_quickstart_reaches_its_accuracy():
    assert_reaches(85.0)
