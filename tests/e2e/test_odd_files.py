# SPDX-License-Identifier: Apache-2.0
"""Files that are not plain: devices, FIFOs, links, pipes, and folders that cannot be written to.

Device nodes are made in the test's own folder: the machine's are not touched.
"""

import json
import os
import shlex
import stat
import subprocess
import threading

import pytest
from conftest import BIN, DDPRUN, SHELL_DDPRUN, SHELL_TRAIN, TRAIN, clean_environment, processes_of_this_session, run, start, wait_for

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
needs_train = pytest.mark.skipif(not os.path.exists(TRAIN), reason="built without LibTorch")
SOMEBODY_ELSE = 12345


def verdict_of(text):
    (line,) = [line for line in text.splitlines() if line.startswith("{")]
    return json.loads(line)


# ---- What is written


@needs_root
def test_a_device_as_the_verdict_file_stays_a_device(tmp_path):
    null = tmp_path / "null"
    os.mknod(null, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    done = run([DDPRUN, "--verdict-file", null, "true"])
    assert done.returncode == 0 and done.stderr == "", done
    assert stat.S_ISCHR(null.lstat().st_mode)
    done = run([DDPRUN, "false"], env=clean_environment(TORCHELASTIC_ERROR_FILE=str(null)))
    assert done.returncode == 1, done
    assert stat.S_ISCHR(null.lstat().st_mode)
    assert os.listdir(tmp_path) == ["null"]


def test_a_link_as_the_verdict_file_is_written_through(tmp_path):
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "v.json").symlink_to("real.json")
    assert run([DDPRUN, "--verdict-file", tmp_path / "v.json", "true"]).returncode == 0
    assert (tmp_path / "v.json").is_symlink()
    assert json.loads((tmp_path / "real.json").read_text())["success"] is True


def test_a_stream_as_the_verdict_file():
    done = run([DDPRUN, "--verdict-file", "/dev/stdout", "echo", "hello"])
    assert done.returncode == 0 and "[0] hello\n" in done.stdout, done
    assert verdict_of(done.stdout)["success"] is True


def test_a_fifo_as_the_verdict_file(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    done = run([DDPRUN, "--verdict-file", fifo, "true"], timeout=30)
    assert done.returncode == 0 and "nothing reads from" in done.stderr, done
    read = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_text()))
    reader.start()
    done = run([DDPRUN, "--verdict-file", fifo, "sh", "-c", "sleep 0.2"], timeout=30)
    reader.join(30)
    assert done.stderr == "" and verdict_of(read[0])["success"] is True, done


@pytest.mark.parametrize(
    ("flag", "path", "says"),
    [
        ("--verdict-file", "no/such/v.json", ["the verdict file", "its folder", "No such file"]),
        ("--verdict-file", ".", ["the verdict file", "Is a directory"]),
        ("--log-dir", "a-file", ["the log folder", "--log-dir"]),
        ("--log-dir", "a-file/logs", ["the log folder", "Not a directory"]),
        ("--event-log", "no/such/events", ["the event log", "No such file"]),
    ],
)
def test_what_cannot_be_written_is_found_before_the_run(tmp_path, flag, path, says):
    (tmp_path / "a-file").write_text("")
    done = run([DDPRUN, flag, tmp_path / path, "sh", "-c", f"echo ran > {shlex.quote(str(tmp_path))}/ran"])
    assert done.returncode in (1, 2) and len(done.stderr.splitlines()) == 1, done
    for word in [flag, *says]:
        assert word in done.stderr, done.stderr
    assert not (tmp_path / "ran").exists()


@needs_train
def test_a_figures_file_that_cannot_be_written_is_found_before_the_runs(tmp_path):
    done = run([TRAIN, "compare", "--json", tmp_path / "no/such.json", "--dataset", "synthetic"], timeout=30)
    assert done.returncode == 2 and "--json" in done.stderr and "cannot be used" in done.stderr, done


def test_a_planted_link_in_the_log_folder_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious\n")
    folder = tmp_path / "logs" / "a" / "round_1" / "rank_0"
    folder.mkdir(parents=True)
    (folder / "stdout.log").symlink_to(victim)
    done = run([DDPRUN, "--log-dir", tmp_path / "logs", "--rdzv-id", "a", "--nproc-per-node", "1", "echo", "hello"])
    assert victim.read_text() == "precious\n", done
    assert "cannot open the log file" in done.stderr, done


@needs_root
@pytest.mark.parametrize("flag", ["--verdict-file", "--event-log", "--log-dir"])
def test_a_link_of_another_user_in_a_shared_folder_is_not_followed(tmp_path, flag):
    shared = tmp_path / "shared"
    shared.mkdir()
    victim = tmp_path / "victim"
    victim.mkdir() if flag == "--log-dir" else victim.write_text("precious")
    link = shared / "planted"
    link.symlink_to(victim)
    os.lchown(link, SOMEBODY_ELSE, SOMEBODY_ELSE)
    shared.chmod(0o1777)
    done = run([DDPRUN, flag, link, "true"])
    assert done.returncode in (1, 2) and "a link of another user" in done.stderr, done
    assert not os.listdir(victim) if flag == "--log-dir" else victim.read_text() == "precious"


# ---- What is read


def bash(text, **options):
    return run(["bash", "-c", text], **options)


def test_settings_from_a_pipe():
    done = bash(f"{SHELL_DDPRUN} --config <(echo 'program: [echo, hello]')")
    assert done.stdout == "[0] hello\n", done
    done = bash(f"echo 'program: [echo, hello]' | {SHELL_DDPRUN} --config /dev/stdin")
    assert done.stdout == "[0] hello\n", done
    done = bash(f"{SHELL_DDPRUN} --env-file <(echo A=b) sh -c 'echo $A'")
    assert done.stdout == "[0] b\n", done


@needs_train
def test_settings_of_the_training_from_a_pipe():
    for call in ("--config <(echo 'lr: 0.123')", "--config /dev/stdin"):
        done = bash(f"echo 'lr: 0.123' | {SHELL_TRAIN} {call} --print-config")
        assert done.returncode == 0 and "\nlr: 0.123 " in done.stdout, done


@needs_train
def test_a_pipe_that_the_ranks_cannot_read_is_an_error_and_not_empty():
    """Ranks share their launcher's stdin: the first reads it to its end."""
    done = bash(f"echo 'lr: 0.123' | {SHELL_DDPRUN} --nproc-per-node 2 {SHELL_TRAIN} --config /dev/stdin --max-steps 1 --dataset synthetic")
    assert done.returncode == 2 and "put the settings in a file" in done.stderr, done


def test_a_hostfile_without_an_end():
    done = run([DDPRUN, "--hostfile", "/dev/zero", "true"], timeout=30)
    assert done.returncode != 0 and "the hostfile /dev/zero: it has more than" in done.stderr, done


# ---- Folders


@needs_root
def test_a_tmp_that_cannot_be_written_to():
    """Sockets, failure records and the folder for logs lie in TMPDIR then."""
    folder = f"/dev/shm/ddprun-test-{os.getpid()}"
    programs = f"{folder}-programs"  # the build folder may be below /tmp
    with_memory = f"mkdir -p $TMPDIR {programs} && mount --bind {shlex.quote(str(BIN))} {programs}"
    with_memory += " && for f in /tmp /var/tmp; do mount -t tmpfs -o ro none $f; done"
    env = clean_environment(TMPDIR=folder)
    env.pop("XDG_RUNTIME_DIR", None)
    program = f"{programs}/ddprun --standalone --redirects 3 sh -c 'echo hello; echo socket $DDPRUN_NOTIFY_SOCKET; exit 3'"
    try:
        done = run(["unshare", "--mount", "sh", "-c", f"{with_memory} && {program}"], env=env)
        assert done.returncode == 3, done
        logs = list(os.scandir(folder))
        assert [entry.name[:11] for entry in logs] == ["ddprun-logs"], logs
        (log,) = [os.path.join(at, "stdout.log") for at, _, names in os.walk(folder) if "stdout.log" in names]
        assert f"socket {folder}/ddprun-" in open(log).read()
    finally:
        subprocess.run(["rm", "-rf", folder, programs], check=True)


@needs_root
def test_a_socket_of_another_user_is_not_believed(tmp_path):
    """Whoever may write to the folder could answer in the service's place."""
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.geteuid() and str(parent).startswith("/tmp/"):
            parent.chmod(0o755)
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    path = folder / "service.sock"
    listen = "import socket,sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()\nwhile True: s.accept()"
    server = start(["setpriv", f"--reuid={SOMEBODY_ELSE}", "--clear-groups", "python3", "-c", listen, path])
    try:
        wait_for("the socket", path.exists)
        for command in (["stop"], ["logs"], ["status"]):
            done = run([BIN / "ddpctl", *command, "--socket", path, "--timeout", "3"])
            assert done.returncode == 1, done
            assert f"belongs to user {SOMEBODY_ELSE}" in done.stderr, done
    finally:
        server.kill()
        server.communicate()


def test_nothing_is_left_behind():
    assert not processes_of_this_session()
