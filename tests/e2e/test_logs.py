# SPDX-License-Identifier: Apache-2.0
"""What the workers say: torchrun's flags beside torchrun, progress bars, a terminal that nobody reads, a full disk."""

import datetime
import os
import pty
import re
import select
import shutil
import subprocess
import time

import pytest
from conftest import DDPRUN, clean_environment, run, torchrun_standalone, wait_for

WORKER = "echo out $LOCAL_RANK; echo apple, $LOCAL_RANK; echo err $LOCAL_RANK >&2"
PREFIX = "[${role_name}${local_rank}/${rank}]:"
DEADLINE = 60


def log_files(folder):
    """Content by (local rank, file name), and of the filtered files by (None, file name); empty ones left out."""
    found = {}
    for path in folder.rglob("*.log"):
        rank = re.fullmatch(r"(?:rank_)?(\d+)", path.parent.name)
        if path.stat().st_size > 0:
            found[int(rank[1]) if rank else None, path.name] = path.read_text()
    return found


def plain(lines):
    """Sorted lines without prefixes: torchrun puts none before what is not tee'd."""
    return sorted(re.sub(r"^\[[^]]*\]:?", "", line) for line in lines.splitlines() if "*****" not in line and line)


def both(tmp_path, *flags, **variables):
    """(console, files) of two workers under torchrun and under ddprun."""
    seen = {}
    for name, command in (("torchrun", torchrun_standalone()), ("ddprun", [DDPRUN])):
        folder = tmp_path / name
        done = run(
            [*command, "--nproc-per-node=2", f"--log-dir={folder}", *flags, "--no-python", "sh", "-c", WORKER],
            env=clean_environment(OMP_NUM_THREADS="1", TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=PREFIX, **variables),
        )
        assert done.returncode == 0, done.stderr
        seen[name] = (done, log_files(folder))
    return seen["torchrun"], seen["ddprun"]


def test_tee_and_filters_as_under_torchrun(tmp_path):
    (theirs, their_files), (ours, our_files) = both(
        tmp_path, "--tee=3", "--duplicate-stdout-filters=apple,,,none", "--duplicate-stderr-filters=err 1"
    )
    assert sorted(ours.stdout.splitlines()) == sorted(theirs.stdout.splitlines())
    assert "[default1/1]:out 1" in ours.stdout
    assert sorted(ours.stderr.splitlines()) == sorted(theirs.stderr.splitlines())
    assert our_files.keys() == their_files.keys()
    for key, text in their_files.items():
        assert sorted(our_files[key].splitlines()) == sorted(text.splitlines()), key
    assert (None, "filtered_stdout.log") in our_files


def test_mappings_and_redirects_as_under_torchrun(tmp_path):
    (theirs, their_files), (ours, our_files) = both(tmp_path, "-r", "0:3,1:1", PET_TEE="1:2")
    assert plain(ours.stdout) == plain(theirs.stdout) == []
    assert plain(ours.stderr) == plain(theirs.stderr) == ["err 1"]
    assert our_files == their_files


def test_the_console_shows_the_same_ranks(tmp_path):
    (theirs, _), (ours, our_files) = both(tmp_path, "--local-ranks-filter=1", "--tee=0:3")
    assert plain(ours.stdout) == plain(theirs.stdout) == ["apple, 1", "out 1"]
    assert plain(ours.stderr) == plain(theirs.stderr) == ["err 1"]
    # torchrun has files of tee'd streams alone; a folder that was named has all here.
    assert our_files[0, "stderr.log"] == "err 0\n"
    assert our_files[1, "stderr.log"] == "err 1\n"


def test_local_ranks_of_ten_and_more(tmp_path):
    done = run([DDPRUN, "--nproc-per-node=12", f"--log-dir={tmp_path}", "-r", "3", "-t", "11:1", "sh", "-c", WORKER])
    assert done.returncode == 0
    assert done.stdout == "[11] out 11\n[11] apple, 11\n"


class Terminal:
    """ddprun on a terminal of its own."""

    def __init__(self, command):
        self.master, terminal = pty.openpty()
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal, env=clean_environment()
        )
        os.close(terminal)
        self.text = b""

    def read_until(self, words):
        """False: the other side is closed, or the deadline came first."""
        end = time.monotonic() + DEADLINE
        while words not in self.text and time.monotonic() < end:
            if select.select([self.master], [], [], 1)[0]:
                try:
                    self.text += os.read(self.master, 1 << 16)
                except OSError:  # the other side is closed
                    break
        return words in self.text

    def read(self):
        """All that comes until the end."""
        self.read_until(b"\0")
        os.close(self.master)
        self.process.wait(DEADLINE)
        return self.text.decode()


def rows(text):
    """What a terminal shows of it in the end: returns and erased lines as there."""
    seen, row, column = [], "", 0
    for part in re.findall(r"\x1b\[K|[\r\n]|[^\r\n\x1b]+", text):
        if part == "\n":
            seen.append(row)
            row, column = "", 0
        elif part == "\r":
            column = 0
        elif part == "\x1b[K":
            row = row[:column]
        else:
            row = row[:column] + part + row[column + len(part) :]
            column += len(part)
    return seen + [row] if row else seen


def test_equal_lines_are_folded_on_a_terminal():
    # Each says it again and again, so that some of them fall together however busy the machine is.
    worker = "for i in $(seq 300); do echo step $i; done"
    text = Terminal([DDPRUN, "--nproc-per-node=4", "sh", "-c", worker]).read()
    assert re.search(r"^ranks \d[\d,-]+: step \d+\r$", text, re.M), text[:500]
    said = {rank: [] for rank in range(4)}
    for ranks, step in re.findall(r"^(?:\[|ranks )([\d,-]+)(?:\]|:) step (\d+)\r$", text, re.M):
        for part in ranks.split(","):
            first, _, last = part.partition("-")
            for rank in range(int(first), int(last or first) + 1):
                said[rank].append(int(step))
    for rank in range(4):
        assert said[rank] == list(range(1, 301)), rank


def test_one_worker_on_a_terminal_and_several_elsewhere_are_shown_as_they_are():
    assert Terminal([DDPRUN, "echo", "alone"]).read() == "[0] alone\r\n"
    done = run([DDPRUN, "--nproc-per-node=2", "echo", "same"])
    assert sorted(done.stdout.splitlines()) == ["[0] same", "[1] same"]


def test_a_progress_bar_is_erased_before_a_line_of_either_stream():
    # Slowly enough that some bars are shown before their line comes.
    worker = (
        "for i in $(seq 50); do printf 'bar %d of 50\\r' $i >&2; sleep 0.01; echo $i; "
        "printf '\\rbar %d' $i; sleep 0.01; printf '\\n'; done"
    )
    text = Terminal([DDPRUN, "sh", "-c", worker]).read()
    assert "bar 7 of 50" in text
    assert rows(text) == [line for i in range(1, 51) for line in (f"[0] {i}", f"[0] bar {i}")]


def test_text_without_a_line_end_is_shown_before_the_end_comes(tmp_path):
    go, out = tmp_path / "go", tmp_path / "out"
    worker = f"printf Loading; while [ ! -e {go} ]; do sleep 0.02; done; echo ' done'"
    terminal = Terminal([DDPRUN, "sh", "-c", worker])
    with out.open("w") as file:
        process = subprocess.Popen([DDPRUN, "sh", "-c", worker], stdout=file, env=clean_environment())
    try:
        assert terminal.read_until(b"[0] Loading")
        wait_for("the text in the file", lambda: out.read_text() == "[0] Loading\n")
    finally:
        go.touch()
        assert process.wait(DEADLINE) == 0
    assert rows(terminal.read()) == ["[0] Loading done"]
    assert out.read_text() == "[0] Loading\n[0] Loading done\n"


def test_a_terminal_that_nobody_reads_holds_no_worker_up(tmp_path):
    done = tmp_path / "done"
    terminal = Terminal([DDPRUN, "sh", "-c", f"seq 500000; touch {done}; echo the end"])
    wait_for("the worker's end", done.exists)
    text = terminal.read()
    assert text.count("\n") == 500001
    assert text.endswith("[0] the end\r\n")


def test_a_console_that_is_a_full_disk_ends_nothing():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [DDPRUN, "sh", "-c", "seq 100000; exit 3"], stdout=full, stderr=subprocess.PIPE, env=clean_environment(),
            timeout=DEADLINE,
        )
    assert done.returncode == 3
    assert b"exit code: 3" in done.stderr


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder])
    if mounted.returncode != 0:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr}")
    yield folder
    assert run(["umount", folder]).returncode == 0


def test_a_full_disk_is_said_once_and_used_again_when_there_is_room(small_disk, tmp_path):
    filler = small_disk / "filler"
    with filler.open("wb") as file:
        file.write(b"x" * 900_000)
    go = tmp_path / "go"
    worker = f"seq 100000; while [ ! -e {go} ]; do sleep 0.01; done; echo more"
    command = [DDPRUN, f"--log-dir={small_disk}", "--rdzv-id=r", "--nproc-per-node=2", "sh", "-c", worker]
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=clean_environment())
    try:
        said = "No space left on device; the run goes on"
        wait_for("the sentence about the disk", lambda: said in (tmp_path / "err").read_text())
        filler.unlink()
        run(["mount", "-o", "remount,size=8m", small_disk])
        wait_for("the word that it is over", lambda: "are written again" in (tmp_path / "err").read_text())
        go.touch()
        assert process.wait(DEADLINE) == 0
    finally:
        process.kill()
        process.wait()
    errors = (tmp_path / "err").read_text()
    assert errors.count("No space left") == 1, errors
    expected = "".join(f"{i}\n" for i in range(1, 100001)) + "more\n"
    for rank in (0, 1):
        assert (small_disk / "r" / "round_1" / f"rank_{rank}" / "stdout.log").read_text() == expected
    assert (tmp_path / "out").read_text().count("\n") == 200002


def test_a_disk_that_stays_full_ends_nothing(small_disk):
    with (small_disk / "filler").open("wb") as file:
        file.write(b"x" * 900_000)
    done = run([DDPRUN, f"--log-dir={small_disk}", "sh", "-c", "seq 100000; exit 7"])
    assert done.returncode == 7
    assert done.stdout.count("\n") == 100000
    assert done.stderr.count("No space left") == 1
    assert "bytes of the output were not written to the log files" in done.stderr


@pytest.mark.skipif(shutil.which("gzip") is None, reason="needs gzip")
def test_a_slow_reader_loses_nothing(tmp_path):
    """`| gzip` and its like are slower than the workers; what they have not taken waits for them."""
    archive = tmp_path / "log.gz"
    with archive.open("wb") as file:
        zipper = subprocess.Popen(["gzip", "-9"], stdin=subprocess.PIPE, stdout=file)
    process = subprocess.Popen(
        [DDPRUN, "--nproc-per-node=4", "seq", "1000000"], stdout=zipper.stdin, env=clean_environment()
    )
    zipper.stdin.close()
    assert process.wait(DEADLINE * 2) == 0
    assert zipper.wait(DEADLINE * 2) == 0
    lines = subprocess.run(["gzip", "-dc", archive], stdout=subprocess.PIPE, check=True).stdout.count(b"\n")
    assert lines == 4_000_000


def test_lines_begin_with_their_time(tmp_path):
    before = datetime.datetime.now()
    done = run([DDPRUN, "--nproc-per-node=2", "--log-time=local", f"--log-dir={tmp_path}", "echo", "word"])
    after = datetime.datetime.now()
    assert done.returncode == 0, done.stderr
    lines = [re.fullmatch(r"(\S{23}) \[[01]\] word", line) for line in done.stdout.splitlines()]
    assert len(lines) == 2 and all(lines), done.stdout
    for line in lines:
        time_of_line = datetime.datetime.strptime(line[1], "%Y-%m-%dT%H:%M:%S.%f")
        assert before - datetime.timedelta(seconds=0.01) <= time_of_line <= after
    assert set(log_files(tmp_path).values()) == {"word\n"}


def test_times_in_utc_and_since_the_start():
    env = clean_environment(PET_LOG_TIME="utc", TZ="Asia/Kathmandu")
    here = time.strftime("%Y-%m-%dT%H:", time.gmtime())
    line = run([DDPRUN, "sh", "-c", "echo word >&2"], env=env).stderr
    there = time.strftime("%Y-%m-%dT%H:", time.gmtime())
    assert line.startswith((here, there)) and line.endswith("Z [0] word\n")
    line = run([DDPRUN, "--log-time", "relative", "echo", "word"]).stdout
    assert re.fullmatch(r" {3,4}\d{1,2}\.\d{3} \[0\] word\n", line), line
