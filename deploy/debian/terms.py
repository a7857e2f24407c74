#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the end of a package's `copyright`: the terms of what is linked into its programs.

    terms.py BUILD_FOLDER PROGRAM...        names in BUILD_FOLDER/bin
"""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from pack_bundle import HEADERS_ONLY, output_of, packages_of, versions_of  # noqa: E402


def main():
    build, *names = sys.argv[1:]
    paths = [name if "/" in name else f"bin/{name}" for name in names]
    targets = [path for path in paths if pathlib.Path(build, path).exists()]
    commands = output_of("ninja", "-C", build, "-t", "commands", "-s", *targets)
    archives = sorted(set(re.findall(r"/usr/lib\S+\.a\b", commands)))
    packages = sorted(set(packages_of(archives).values()) | set(versions_of(HEADERS_ONLY).items()))
    print("\nComment: The programs have parts of these packages linked in, whose terms follow:")
    for package, version in packages:
        print(f"  {package} {version}")
    for package, version in packages:
        print(f"\n==== {package} {version}\n")
        print(pathlib.Path("/usr/share/doc", package, "copyright").read_text(errors="replace").rstrip())


if __name__ == "__main__":
    main()
