# SPDX-License-Identifier: Apache-2.0
"""Each public header of libddprun compiles alone, without a warning, with both compilers. Nightly: LibTorch's headers take
seconds each time."""

import shutil

import pytest
from conftest import REPO, run, torch_folder

HEADERS = REPO / "worker/include"


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_each_header_compiles_alone(compiler, tmp_path):
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} here")
    torch = torch_folder()
    flags = [f"-I{HEADERS}", f"-isystem{torch}/include", f"-isystem{torch}/include/torch/csrc/api/include"]
    headers = sorted((HEADERS / "ddprun").rglob("*.h"))
    assert len(headers) > 8
    for header in headers:
        source = tmp_path / f"{header.stem}.cc"
        source.write_text(f"#include <{header.relative_to(HEADERS)}>\n")
        done = run([compiler, "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", *flags, source], timeout=300)
        assert done.returncode == 0, (header, done)
