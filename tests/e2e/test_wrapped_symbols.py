# SPDX-License-Identifier: Apache-2.0
"""The check of the build that functions of gRPC can be replaced (proto/cmake/wrapped_symbols.cmake), with small libraries in gRPC's place."""

import subprocess

import pytest
from conftest import REPO, run

CALLER = "void Read(void); void Caller(void) { Read(); }"
CALLEE = "void Read(void) {}"


def check(folder, *sources):
    """Of a library with an object file for each source."""
    objects = []
    for number, source in enumerate(sources):
        path = folder / f"{number}.c"
        path.write_text(source)
        objects.append(path.with_suffix(".o"))
        subprocess.run(["cc", "-c", path, "-o", objects[-1]], check=True)
    library = folder / "libgrpc.a"
    subprocess.run(["ar", "rc", library, *objects], check=True)
    script = folder / "check.cmake"
    script.write_text(
        f'set(CMAKE_NM nm)\ninclude({REPO}/proto/cmake/wrapped_symbols.cmake)\nddprun_check_wrapped_symbols("gRPC 9.8.7" {library} Read)\n'
    )
    return run(["cmake", "-P", script])


def test_a_call_between_two_object_files_can_be_replaced(tmp_path):
    done = check(tmp_path, CALLER, CALLEE)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "sources",
    [
        ["void Caller(void) {}", "void ReadOtherwise(void) {}"],
        ["void Caller(void) {}", CALLEE],  # the linker would accept it
        [CALLER, "void ReadOtherwise(void) {}"],
        [f"{CALLEE} {CALLER}"],  # one object file: the linker would accept it, and replace nothing
    ],
    ids=["neither", "nothing calls it", "nothing defines it", "one file"],
)
def test_the_build_names_the_version_where_it_does_not_fit(tmp_path, sources):
    done = check(tmp_path, *sources)
    assert done.returncode != 0
    sentence = " ".join(done.stderr.split())
    assert "gRPC 9.8.7 does not fit ddprun" in sentence
    assert f"no object file of {tmp_path}/libgrpc.a calls Read of another one" in sentence
