# SPDX-License-Identifier: Apache-2.0
"""The README's first command, to its end."""

import re

from conftest import REPO, run


def test_quickstart_reaches_its_accuracy():
    done = run([REPO / "deploy" / "quickstart.sh"], timeout=1400)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    for rank in (0, 1):
        assert re.search(rf"^\[{rank}\] epoch \d+/\d+ batch \d+/\d+ loss \d", done.stdout, re.MULTILINE)
    accuracy = float(re.search(r"test accuracy\D+(\d+\.\d+) ?%", done.stdout).group(1))
    print(done.stdout[-1500:])
    assert accuracy >= 85.0, done.stdout[-3000:]
    assert (REPO / "build" / "quickstart" / "cifar_net.pth").is_file()
