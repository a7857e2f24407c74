# SPDX-License-Identifier: Apache-2.0
"""Faults of disks, descriptors and limits, for programs that a pytest starts. fault_shim.c has the rules' form.

    faults = Faults(tmp_path)
    process = start([DDPRUN, ...], env=clean_environment(**faults.env()))
    faults.set(f"write ENOSPC path={tmp_path}/logs")
    faults.wait_for_hit("write ENOSPC")
    faults.clear()
"""

import contextlib
import os
import pathlib
import resource
import subprocess
import time

BUILD = pathlib.Path(os.environ.get("DDPRUN_BUILD_DIR", pathlib.Path(__file__).resolve().parents[2] / "build"))
SHIM = BUILD / "tests" / "libfault_shim.so"


class Faults:
    """Switches faults on and off in programs that were started with env()."""

    def __init__(self, folder):
        self.file = pathlib.Path(folder).resolve() / "faults"
        self.clear()

    def env(self):
        assert SHIM.is_file(), f"{SHIM} is missing; build the target fault_shim"
        shim = self.file.with_suffix(".so")  # LD_PRELOAD takes a blank in the build folder's path for the end of a name
        with contextlib.suppress(FileExistsError):
            shim.symlink_to(SHIM)
        return {"LD_PRELOAD": str(shim), "DDPRUN_FAULTS": str(self.file)}

    def set(self, *rules):
        """These rules and no others, from each program's next call on."""
        following = self.file.with_suffix(".next")
        following.write_text("".join(f"{rule}\n" for rule in rules))
        following.rename(self.file)

    def clear(self):
        self.set()

    def hits(self):
        """[PID CALL ACTION PATH], a line for each call that was affected."""
        with contextlib.suppress(FileNotFoundError):
            return pathlib.Path(f"{self.file}.hits").read_text().splitlines()
        return []

    def wait_for_hit(self, text, timeout=30):
        deadline = time.monotonic() + timeout
        while not any(text in hit for hit in self.hits()):
            assert time.monotonic() < deadline, f"no call was affected by {text!r}: {self.hits()}"
            time.sleep(0.01)


def with_limit(limit, command):
    """The command with a limit of its own, as prlimit(1) has them: "--fsize=4096", "--nofile=64:64"."""
    return ["prlimit", limit, "--", *command]


def limit_descriptors(pid, limit):
    """The descriptors below `limit` are all that a running process may have. Returns the limits before."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, before[1]))
    return before


@contextlib.contextmanager
def small_disk(folder, size):
    """A disk of so many bytes, which needs root. Yields whether it could be made."""
    os.makedirs(folder, exist_ok=True)
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "ddprun-test", str(folder)], stderr=subprocess.DEVNULL
    )
    try:
        yield made.returncode == 0
    finally:
        if made.returncode == 0:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)
