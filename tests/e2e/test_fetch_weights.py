# SPDX-License-Identifier: Apache-2.0
"""deploy/fetch-weights.sh against a server on this machine that serves good, broken, short and wrong files."""

import hashlib
import http.server
import os
import re
import shutil
import threading

import pytest
from conftest import REPO, clean_environment, run

FETCH = REPO / "deploy" / "fetch-weights.sh"
CONTENT = os.urandom(300_000)
SUM = hashlib.sha256(CONTENT).hexdigest()
NAME = f"tiny-{SUM[:8]}.pth"

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves `server.content` with ranges; ends the first `server.breaks` answers in the middle."""

    def do_GET(self):
        server, first = self.server, 0
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")) if server.ranges else None
        if wanted:
            first = int(wanted.group(1))
        server.asked.append((self.path, first))
        if self.path != f"/mirror/{NAME}":
            return self.send_error(404)
        if first and first >= len(server.content):
            return self.send_error(416)
        rest = server.content[first:]
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(rest)))
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{len(server.content) - 1}/{len(server.content)}")
        self.end_headers()
        if server.breaks > 0:
            server.breaks -= 1
            rest = rest[: len(rest) // 2]
        self.wfile.write(rest)
        self.close_connection = True

    def log_message(self, *_):
        pass


@pytest.fixture
def mirror():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.content, server.breaks, server.ranges, server.asked = CONTENT, 0, True, []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join(10)
    server.server_close()


def fetch(server, folder, *names):
    base = f"http://127.0.0.1:{server.server_port}/mirror"
    names = [f"{NAME}:{SUM}" if name == NAME else name for name in names]
    return run([FETCH, folder, *names], env=clean_environment(FETCH_BASE_URL=base, no_proxy="127.0.0.1"))


def visible(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def test_a_good_file_is_fetched_once(mirror, tmp_path):
    folder = tmp_path / "shared"
    for _ in range(2):
        done = fetch(mirror, folder, NAME)
        assert done.returncode == 0, done.stderr
        assert f"--init-from {folder}/{NAME}" in done.stderr
    assert (folder / NAME).read_bytes() == CONTENT
    assert visible(folder) == [NAME] and len(mirror.asked) == 1


@pytest.mark.parametrize("ranges", [True, False])
def test_a_download_that_broke_off_goes_on(mirror, tmp_path, ranges):
    mirror.breaks, mirror.ranges = 1, ranges
    done = fetch(mirror, tmp_path, NAME)
    assert done.returncode == 1 and "run this again to go on" in done.stderr, done
    assert not (tmp_path / NAME).exists()
    done = fetch(mirror, tmp_path, NAME)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / NAME).read_bytes() == CONTENT and visible(tmp_path) == [NAME]
    if ranges:
        assert mirror.asked[-1][1] == len(CONTENT) // 2


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT[:100] + b"!" + CONTENT[101:], b""], ids=["short", "wrong", "empty"])
def test_what_is_not_the_file_is_refused_and_gone(mirror, tmp_path, content):
    mirror.content = content
    done = fetch(mirror, tmp_path, NAME)
    assert done.returncode == 1 and "sha256" in done.stderr, done
    assert visible(tmp_path) == []
    mirror.content = CONTENT
    assert fetch(mirror, tmp_path, NAME).returncode == 0


def test_a_part_of_another_file_does_not_stay(mirror, tmp_path):
    """Longer than what is served: nothing to go on with."""
    (tmp_path / f".{NAME}.part").write_bytes(b"x" * (len(CONTENT) + 5))
    done = fetch(mirror, tmp_path, NAME)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / NAME).read_bytes() == CONTENT


def test_eight_digits_that_are_right_are_not_enough(mirror, tmp_path):
    """A mirror can make a file whose SHA-256 begins as its name says."""
    done = run([FETCH, tmp_path, f"{NAME}:{SUM[:8]}{'0' * 56}"], env=clean_environment(FETCH_BASE_URL=f"http://127.0.0.1:{mirror.server_port}/mirror", no_proxy="127.0.0.1"))
    assert done.returncode == 1 and "sha256" in done.stderr, done
    assert visible(tmp_path) == []


def test_the_known_files_have_whole_sums():
    text = FETCH.read_text()
    for name, digits in re.findall(r"(resnet\d+)-([0-9a-f]{8})\.pth:", text):
        assert re.search(rf"{name}-{digits}\.pth:{digits}[0-9a-f]{{56}} ", text), name


def test_a_users_own_damaged_file_is_left_to_the_user(mirror, tmp_path):
    (tmp_path / NAME).write_bytes(b"mine")
    done = fetch(mirror, tmp_path, NAME)
    assert done.returncode == 1 and "damaged" in done.stderr and not mirror.asked
    assert (tmp_path / NAME).read_bytes() == b"mine"


def test_what_a_mirror_has_not_says_where_to_put_it(mirror, tmp_path):
    done = fetch(mirror, tmp_path, "resnet18")
    assert done.returncode == 1
    assert f"put it at {tmp_path}/resnet18-f37072fd.pth" in done.stderr
    assert [path for path, _ in mirror.asked] == ["/mirror/resnet18-f37072fd.pth"]


@pytest.mark.parametrize("name", ["resnet19", "resnet18.pth", "tiny-00000000.pth", "tiny.pth:0123abcd", f"../x:{SUM}", f".x:{SUM}"])
def test_a_model_without_weights_is_named(mirror, tmp_path, name):
    done = fetch(mirror, tmp_path / "new", name)
    assert done.returncode == 1 and name in done.stderr and "resnet18" in done.stderr
    assert not (tmp_path / "new").exists()
