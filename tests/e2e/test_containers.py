# SPDX-License-Identifier: Apache-2.0
"""deploy/'s images without a Docker: the entry point between two hosts, and what the Dockerfile says. (test_images.py builds them.)"""

import os
import re
import shutil
import sys
import tempfile

import pytest
from conftest import BIN, DDPRUN, REPO, TRAIN, clean_environment, finish_all, run, start
from hosts import two_hosts  # noqa: F401  (a fixture)

ENTRY = REPO / "deploy" / "entrypoint.sh"
DOCKERFILE = REPO / "deploy" / "Dockerfile"
TOKEN = "0123456789abcdef" * 4


def packages(section):
    text = (REPO / "deploy" / "packages.txt").read_text()
    part = re.search(rf"^\[{section}\]\n(.*?)(?=^\[|\Z)", text, re.MULTILINE | re.DOTALL).group(1)
    return part.split()


@pytest.fixture
def recorded(tmp_path):
    """Runs the entry point beside a `ddprun` that only says how it was called."""
    fake = tmp_path / "bin"
    fake.mkdir()
    for name in ("ddprun", "train"):
        (fake / name).write_text(f'#!/bin/sh\necho "{name} $*"\nenv | grep -E "^(RANK|WORLD_SIZE|MASTER_|DDPRUN_TOKEN)" || true\n')
        (fake / name).chmod(0o755)

    def call(*arguments, **variables):
        env = clean_environment(
            PATH=f"{fake}:/usr/bin:/bin",
            HOME=str(tmp_path),
            DDPRUN_SECRET_FILE=str(tmp_path / "secret"),
            DDPRUN_DEVICES=str(tmp_path),
        )
        del env["DDPRUN_TOKEN"]
        env.update(variables)
        return run([ENTRY, *arguments], env=env, cwd=tmp_path)

    return call


SEVERAL = {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "10.0.0.1", "DDPRUN_TOKEN": TOKEN}


def test_the_variables_become_flags_and_are_gone(recorded):
    done = recorded("--lr", "0.1", "two words", **SEVERAL)
    assert done.returncode == 0, done.stderr
    command, *variables = done.stdout.splitlines()
    assert command == (
        "ddprun --nnodes 2 --node-rank 1 --master-addr 10.0.0.1 --master-port 29500 --nproc-per-node 1"
        " train --lr 0.1 two words"
    )
    assert variables == [f"DDPRUN_TOKEN={TOKEN}"]
    done = recorded(MASTER_PORT="4000", NPROC_PER_NODE="3", **SEVERAL)
    assert "--master-port 4000 --nproc-per-node 3 train" in done.stdout, done


@pytest.mark.parametrize("variables", [{}, {"WORLD_SIZE": "1", "RANK": "0", "MASTER_ADDR": "here"}])
def test_one_container_is_a_run(recorded, variables):
    done = recorded("--epochs", "2", **variables)
    assert done.stdout == "ddprun --standalone --nproc-per-node 1 train --epochs 2\n", done


def test_a_container_with_gpus_has_a_worker_for_each(recorded, tmp_path):
    """Without them it is one process, however many CPUs the host has."""
    (tmp_path / "nvidiactl").touch()
    assert "--nproc-per-node 1 " in recorded().stdout
    (tmp_path / "nvidia0").touch()
    assert "--nproc-per-node gpu " in recorded().stdout


def test_the_secrets_advice_pasted_on_two_hosts_makes_one_secret(recorded):
    """One line makes it and prints the line for the others."""
    done = recorded(**{name: value for name, value in SEVERAL.items() if name != "DDPRUN_TOKEN"})
    line = re.search(r"`(export DDPRUN_TOKEN=.*?)`", done.stderr).group(1)
    first = run(["bash", "-c", f'{line}; echo "$DDPRUN_TOKEN"'])
    other_line, secret = first.stdout.splitlines()
    assert re.fullmatch("[0-9a-f]{64}", secret), first
    assert run(["bash", "-c", f'{other_line}; echo "$DDPRUN_TOKEN"']).stdout == secret + "\n"
    help_line = re.search(r"^ *(export DDPRUN_TOKEN=.*)$", recorded("--help").stdout, re.MULTILINE).group(1)
    assert help_line == line


def test_container_0_behind_a_published_port_listens_on_its_own_addresses(recorded):
    """MASTER_ADDR is the host's address, which no interface of the container has."""
    elsewhere = {**SEVERAL, "MASTER_ADDR": "192.0.2.7", "MASTER_PORT": "4000"}
    first = recorded(**{**elsewhere, "RANK": "0"})
    assert "--rdzv-endpoint 192.0.2.7:4000 --rdzv-conf is_host=true " in first.stdout, first
    assert "must be published (-p 4000:4000)" in first.stderr, first
    other = recorded(**{**elsewhere, "RANK": "1"})
    assert "--master-addr 192.0.2.7 --master-port 4000 " in other.stdout and other.stderr == "", other
    here = recorded(**{**SEVERAL, "RANK": "0", "MASTER_ADDR": "127.0.0.1"})
    assert "--master-addr 127.0.0.1 " in here.stdout and here.stderr == "", here
    six = recorded(**{**SEVERAL, "RANK": "0", "MASTER_ADDR": "2001:db8::7"})
    assert "--rdzv-endpoint [2001:db8::7]:29500 " in six.stdout, six


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_a_folder_of_roots_is_named_with_what_to_do(recorded, tmp_path):
    """As docker makes the folder of -v where it is not there."""
    folder = tmp_path / "out"
    folder.mkdir()
    tmp_path.chmod(0o755)
    with tempfile.TemporaryDirectory() as open_to_all:  # the repository may lie where another user does not come
        os.chmod(open_to_all, 0o755)
        entry = shutil.copy(ENTRY, open_to_all)
        done = run(["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "--", entry], cwd=folder, env=clean_environment())
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done
    for words in (f"{folder} cannot be written by user 1000", "mkdir -p out", '--user "$(id -u):$(id -g)"'):
        assert words in done.stderr


def test_the_image_can_fetch_what_its_messages_name(recorded, tmp_path):
    """The scripts, and what they need, are in the image; a message about missing data names how they are run."""
    final = stages()[-1]
    copied = [rest.split() for word, rest in final if word == "COPY"]
    for script in ("fetch-data.sh", "fetch-weights.sh", "common.sh"):
        assert any(f"deploy/{script}" in words and words[-1] == "/opt/ddprun/deploy/" for words in copied), script
    assert {"curl", "ca-certificates"} <= set(packages("image-train"))
    missing = tmp_path / "missing.tar.gz"
    done = recorded("fetch-data", DDPRUN_CIFAR10_URL=f"file://{missing}")
    assert done.returncode == 1 and f"put it at {tmp_path}/cache/data/cifar-10-binary.tar.gz" in done.stderr, done
    done = recorded("fetch-weights", tmp_path / "weights", "resnet19")
    assert done.returncode == 1 and "resnet19" in done.stderr, done


@pytest.mark.skipif(not os.path.exists(TRAIN), reason="built without LibTorch")
def test_missing_data_in_a_container_say_how_a_container_gets_them(tmp_path):
    done = run([ENTRY, "--dataset", "cifar10"], env=clean_environment(PATH=f"{BIN}:/usr/bin:/bin"), cwd=tmp_path)
    assert done.returncode != 0 and "docker run" in done.stderr + done.stdout and "fetch-data" in done.stderr + done.stdout, done
    assert "deploy/fetch-data.sh" not in done.stderr + done.stdout, done


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"WORLD_SIZE": "two"}, ["WORLD_SIZE='two'", "whole number"]),
        ({"WORLD_SIZE": "0"}, ["WORLD_SIZE=0", "1 to"]),
        ({"WORLD_SIZE": None}, ["RANK is 1", "WORLD_SIZE"]),
        ({"RANK": None}, ["RANK is not set", "-e RANK=0"]),
        ({"RANK": "2"}, ["RANK=2", "0 to 1"]),
        ({"RANK": "-1"}, ["RANK='-1'", "whole number"]),
        ({"MASTER_ADDR": None}, ["MASTER_ADDR is not set"]),
        ({"MASTER_PORT": "http"}, ["MASTER_PORT='http'"]),
        ({"MASTER_PORT": "70000"}, ["MASTER_PORT=70000", "65535"]),
        ({"DDPRUN_TOKEN": None}, ["DDPRUN_TOKEN", "openssl rand -hex 32", "DDPRUN_INSECURE"]),
    ],
)
def test_what_is_missing_or_wrong_is_one_sentence(recorded, change, says):
    done = recorded(**{name: value for name, value in {**SEVERAL, **change}.items() if value is not None})
    assert done.returncode == 2 and done.stdout == "", done
    assert len(done.stderr.splitlines()) == 1, done.stderr
    for words in says:
        assert words in done.stderr


def test_the_secret_may_be_a_file_or_none(recorded, tmp_path):
    without = {name: value for name, value in SEVERAL.items() if name != "DDPRUN_TOKEN"}
    assert " --insecure " in recorded(**without, DDPRUN_INSECURE="1").stdout
    (tmp_path / "secret").write_text(TOKEN + "\n")
    done = recorded(**without)
    assert done.stdout.splitlines()[1:] == [f"DDPRUN_TOKEN={TOKEN}"], done


def test_help_tells_of_the_variables_and_of_train(recorded):
    done = recorded("--help")
    assert done.returncode == 0
    for words in ("WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT", "29500", "DDPRUN_TOKEN", "NPROC_PER_NODE", "train --help"):
        assert words in done.stdout, done


@pytest.mark.skipif(not os.path.exists(TRAIN), reason="built without LibTorch")
def test_two_containers_train_one_model(two_hosts, tmp_path):  # noqa: F811
    """Each is process 1 of its own process namespace, as in a container."""
    processes = []
    for rank, host in enumerate(two_hosts):
        env = clean_environment(
            PATH=f"{BIN}:/usr/bin:/bin", WORLD_SIZE="2", RANK=str(rank), MASTER_ADDR="10.77.0.1", NPROC_PER_NODE="1"
        )
        container = [*host.prefix, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", ENTRY]
        work = ["--dataset", "synthetic", "--batch-size", "16", "--max-steps", "4", "--log-every", "1", "--no-eval"]
        processes.append(start([*container, *work, "--output-dir", tmp_path / str(rank)], env=env))
    results = finish_all(processes)
    assert [code for code, _, _ in results] == [0, 0], results
    for _, out, _ in results:
        assert len(re.findall(r"batch \d+/\d+ loss", out)) == 4, results
    assert (tmp_path / "0" / "cifar_net.pth").is_file()
    assert not (tmp_path / "1" / "cifar_net.pth").exists()


FORWARDER = """
import socket, sys, threading

def pump(source, sink):
    while data := source.recv(65536):
        sink.sendall(data)
    sink.shutdown(socket.SHUT_WR)

listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
while True:
    near, _ = listener.accept()
    try:
        far = socket.create_connection((sys.argv[3], int(sys.argv[2])))
    except OSError:
        near.close()  # nothing listens yet
        continue
    for pair in ((near, far), (far, near)):
        threading.Thread(target=pump, args=pair, daemon=True).start()
"""


@pytest.fixture
def programs(tmp_path):
    """A folder with this build's ddprun and a `train` that only says who it is."""
    folder = tmp_path / "programs"
    folder.mkdir()
    shutil.copy(BIN / "ddprun", folder)
    (folder / "train").write_text('#!/bin/sh\necho "$RANK of $WORLD_SIZE"\n')
    (folder / "train").chmod(0o755)
    return folder


def test_container_0_is_reached_at_an_address_that_only_its_host_has(two_hosts, programs, tmp_path):  # noqa: F811
    """As with docker run -p: connections to 10.77.0.9 are forwarded to the container at 10.77.0.1."""
    first, second = two_hosts
    second.run("ip", "address", "add", "10.77.0.9/32", "dev", "lo")
    first.run("ip", "route", "add", "10.77.0.9", "via", "10.77.0.2")
    forwarder = start([*second.prefix, sys.executable, "-c", FORWARDER, "10.77.0.9", "29500", "10.77.0.1"])
    try:
        assert forwarder.stdout.readline() == "ready\n"
        processes = []
        for rank, host in enumerate(two_hosts):
            env = clean_environment(PATH=f"{programs}:/usr/bin:/bin", WORLD_SIZE="2", RANK=str(rank), MASTER_ADDR="10.77.0.9")
            processes.append(start([*host.prefix, ENTRY], env=env, cwd=tmp_path))
        results = finish_all(processes, 60)
    finally:
        forwarder.kill()
        forwarder.communicate()
    assert [code for code, _, _ in results] == [0, 0], results
    assert ["0 of 2" in results[0][1], "1 of 2" in results[1][1]] == [True, True], results
    assert "must be published" in results[0][2] and results[1][2] == "", results


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"MASTER_PORT": "80000"}, ["MASTER_PORT"]),
        ({"RANK": "0", "MASTER_ADDR": "10.77.0.1"}, ["in use", "another one with MASTER_PORT on all nodes"]),
        ({"NPROC_PER_NODE": "none"}, ["NPROC_PER_NODE"]),
        ({"PET_JOIN_TIMEOUT": "1"}, ["PET_JOIN_TIMEOUT"]),
    ],
)
def test_sentences_name_the_variables_that_people_set(two_hosts, programs, tmp_path, change, says):  # noqa: F811
    """Those of ddprun itself, which has flags of other names."""
    env = {**SEVERAL, "MASTER_ADDR": "10.77.0.2", "PET_JOIN_TIMEOUT": "2", **change}
    hold = "import socket; s = socket.create_server(('10.77.0.1', 29500)); print('ready', flush=True); s.accept()"
    holder = start([*two_hosts[0].prefix, sys.executable, "-c", hold])
    try:
        assert holder.stdout.readline() == "ready\n"
        command = [*two_hosts[0].prefix, ENTRY]
        done = run(command, env=clean_environment(PATH=f"{programs}:/usr/bin:/bin", **env), cwd=tmp_path)
    finally:
        holder.kill()
        holder.communicate()
    assert done.returncode != 0, done
    for words in says:
        assert words in done.stderr, done
    for flag in ("--nnodes", "--node-rank", "--master-", "--rdzv-", "--nproc", "--join-timeout"):
        assert flag not in done.stderr, done


# ---- The Dockerfile ---------------------------------------------------------------------------------------------


def instructions():
    """(word, rest) of each instruction, its lines joined."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]


def stages():
    found = []
    for word, rest in instructions():
        if word == "FROM":
            found.append([])
        if found:
            found[-1].append((word, rest))
    return found


def test_the_dockerfile_copies_what_is_there_and_what_is_sent():
    allowed = re.findall(r"^!(.+)$", (REPO / "deploy" / "Dockerfile.dockerignore").read_text(), re.MULTILINE)
    copied = [rest.split() for word, rest in instructions() if word == "COPY" and not rest.startswith("--from=")]
    assert copied
    for *sources, _ in copied:
        for source in sources:
            assert list(REPO.glob(source)), source
            assert source.split("/")[0] in allowed, f"{source} is not sent to the builder"


def test_all_that_building_includes_is_copied():
    """What CMakeLists.txt adds, but the tests."""
    copied = {source for word, rest in instructions() if word == "COPY" for source in rest.split()[:-1]}
    added = set(re.findall(r"add_subdirectory\((\w+)\)", (REPO / "CMakeLists.txt").read_text())) - {"tests"}
    assert added <= copied


def test_the_dockerfile_is_as_images_should_be():
    words = [word for word, _ in instructions()]
    assert "ADD" not in words, "ADD fetches and unpacks by itself; COPY does not"
    assert not re.search(r"https?://|curl |wget ", DOCKERFILE.read_text()), "what is fetched is fetched by setup.sh"
    base = re.search(r"^ARG DEBIAN=(\S+)", DOCKERFILE.read_text(), re.MULTILINE).group(1)
    assert re.fullmatch(r"debian:\d+-slim(@sha256:[0-9a-f]{64})?", base), base
    named = {"scratch", "${DEBIAN}"}
    for image, name in re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE.read_text(), re.MULTILINE):
        assert image in named, f"{name} is from {image}, which is neither the base nor a stage before"
        named.add(name)
    assert {rest.split()[0].removeprefix("--from=") for word, rest in instructions() if rest.startswith("--from=")} <= named
    assert len(stages()) == DOCKERFILE.read_text().count("\nFROM "), "a stage without a name"
    launcher, train = (next(one for one in stages() if one[0] == ("FROM", f"{image} AS {name}")) for image, name in
                       (("scratch", "launcher"), ("${DEBIAN}", "train")))  # fmt: skip
    assert train == stages()[-1], "without --target it is the image with train"
    for image, entry in ((launcher, "ddprun"), (train, "entrypoint.sh")):
        # A number, as Kubernetes cannot tell of a name whether it is root's.
        assert [rest for word, rest in image if word == "USER"] == ["1000:1000"]
        assert [rest for word, rest in image if word == "ENTRYPOINT"] == [f'["/opt/ddprun/bin/{entry}"]']
    assert os.access(ENTRY, os.X_OK)
    # Packages are named in packages.txt and nowhere else.
    installed = [rest for _, rest in train if "apt-get install" in rest]
    assert len(installed) == 1 and "packages.txt" in installed[0] and r"\[image-train\]" in installed[0]
    assert "rm -rf /var/lib/apt/lists/*" in installed[0]
    assert packages("image") and r"\[image\]" in (REPO / "deploy" / "image" / "root.sh").read_text()
    # Scripts that the Dockerfile runs are there and may be run.
    for script in re.findall(r"RUN .*?(deploy/\S+\.(?:sh|py))", DOCKERFILE.read_text()):
        assert os.access(REPO / script, os.X_OK), script


@pytest.mark.parametrize("name", ["ddpctl", "ddprun-rendezvous"])
def test_a_link_of_that_name_to_ddprun_is_the_program(tmp_path, name):
    """As in the images, where one file is all three."""
    (tmp_path / name).symlink_to(DDPRUN)
    for argument in ("--version", "--help", "--no-such-flag"):
        as_link, alone = (run([path, argument]) for path in (tmp_path / name, BIN / name))
        assert (as_link.returncode, as_link.stdout, as_link.stderr) == (alone.returncode, alone.stdout, alone.stderr)
