# SPDX-License-Identifier: Apache-2.0
"""A service that is killed while two nodes train. The script fails if the training is disturbed; times are for people."""

import json
import os
import re
import subprocess
import sys

from conftest import BIN, REPO, clean_environment, run


def test_training_goes_on_over_a_killed_service(tmp_path):
    report = tmp_path / "report.json"
    script = REPO / "tests" / "bench" / "service_kills.py"
    env = dict(os.environ)  # DDPRUN_BUILD_DIR must reach it
    done = run([sys.executable, script, "--kills", "12", "--build", BIN.parent, "--json", report], env=env, timeout=280)
    assert done.returncode == 0, done.stderr
    figures = json.loads(report.read_text())
    assert figures["kills"] == 12
    assert figures["steps"] > 12
    assert 0 < figures["back_s"]["median"] <= figures["back_s"]["max"]
    print(done.stdout)


def test_a_full_disk_ends_the_service_with_one_sentence(tmp_path):
    """A file system of 1 MB that something else has filled."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=True)
    try:
        service = subprocess.Popen(
            [BIN / "ddprun-rendezvous", "--port", "0", "--journal", disk / "journal"],
            env=clean_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        target = service.stdout.readline().split()[-1]
        (disk / "filler").write_bytes(b"")
        try:
            with open(disk / "filler", "wb") as filler:
                while True:
                    filler.write(b"x" * 4096)
                    filler.flush()
        except OSError:
            pass
        # The last page of the journal has room for some of the joins, each of which names its run twice.
        nodes = [
            subprocess.Popen(
                [BIN / "ddprun", "--nnodes", "2", "--rdzv-endpoint", target, "--rdzv-id", f"{i}-".ljust(250, "x"), "true"],
                env=clean_environment(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for i in range(16)
        ]
        try:
            _, said = service.communicate(timeout=60)
        finally:
            for node in nodes:
                node.terminate()
                node.wait(60)
        assert service.returncode == 1
        assert len(said.splitlines()) == 1, said
        assert re.search(r"journal.*No space left on device", said), said
    finally:
        subprocess.run(["umount", disk], check=True)
