# SPDX-License-Identifier: Apache-2.0
"""What a benchmark asks the kernel about the processes of a run."""

import pathlib


def below(root):
    """{pid: (name, the fields of /proc/PID/stat from the state on)} of `root` and all below it."""
    seen = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            name, fields = (entry / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
        except OSError:
            continue
        seen[int(entry.name)] = (name, fields.split())

    def is_below(pid):
        while pid in seen and pid != root:
            pid = int(seen[pid][1][1])
        return pid == root

    return {pid: what for pid, what in seen.items() if is_below(pid)}
