# SPDX-License-Identifier: Apache-2.0
"""Checkpoints from a shell: killed and resumed a training ends as the one left alone, with any number of ranks; what a
signal, a damaged file, a lost folder and a checkpoint of something else come to. DDPRUN_KILLS=20 is the long form."""

import collections
import json
import os
import pathlib
import random
import re
import shlex
import signal
import time

import pytest
import torch
from conftest import DDPRUN, TRAIN, clean_environment, processes_of_this_session, run, start, wait_for
from safetensors import safe_open

KILLS = int(os.environ.get("DDPRUN_KILLS", "3"))
# Fast steps, and everything that a checkpoint has to hold.
SETTINGS = ["--model", "netresdeep", "--dataset", "synthetic", "--batch-size", "4", "--no-eval", "--ema-decay", "0.9"]


def command(ranks, output, *more):
    return [DDPRUN, "--standalone", "--nproc-per-node", ranks, TRAIN, *SETTINGS, "--output-dir", output, *more]


def checkpoints(folder):
    return sorted(pathlib.Path(folder).glob("step-*.safetensors"))


def step_of(path):
    return int(re.search(r"step-(\d+)", path.name).group(1))


def same_model(one, other):
    left, right = (torch.load(folder / "cifar_net.pth") for folder in (one, other))
    assert list(left) == list(right)
    return all(torch.equal(left[name], right[name]) for name in left)


def steps_logged(output):
    """The last step that rank 0 has begun."""
    try:
        lines = (output / "samples-0.jsonl").read_text().splitlines()
    except OSError:
        return 0
    steps = [int(found.group(1)) for found in (re.match(r'\{"step": (\d+),', line) for line in lines) if found]
    return steps[-1] if steps else 0


def logged_at(output):
    return (output / "samples-0.jsonl").stat().st_mtime


def workers():
    return [int(pid) for pid, words in processes_of_this_session() if words.startswith(TRAIN)]


def parent_of(pid):
    return int(re.search(r"PPid:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1))


def kill_everything(process):
    """As a machine that loses its power: nobody gets to say anything."""
    for pid, _ in processes_of_this_session():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.communicate(timeout=60)
    wait_for("the end of all", lambda: not processes_of_this_session())


def test_killed_at_random_steps_it_ends_as_the_one_left_alone(tmp_path):
    steps = 40 + 10 * KILLS
    more = ["--max-steps", steps, "--checkpoint-every", "3", "--log-samples", "--log-every", "10"]
    alone, killed = tmp_path / "alone", tmp_path / "killed"
    done = run(command(2, alone, *more), timeout=280)
    assert done.returncode == 0, done.stderr
    words = command(2, killed, *more)
    words[1:1] = ["--max-restarts", str(KILLS)]
    process = start(words)
    generator = random.Random(7)
    restarted = 0.0
    for kill in range(KILLS):
        # Somewhere in this kill's part of the training. Both ranks: one that lives on has the state, and goes on in place.
        goal = 10 * kill + generator.randrange(4, 14)
        # A busy disk may have no checkpoint yet by then: what is killed before the first one begins anew.
        # Or none before all steps were done: those that are logged are not the next training's.
        ready = lambda: (  # noqa: E731
            steps_logged(killed) >= goal and checkpoints(killed / "checkpoints") and logged_at(killed) > restarted
        )
        reached = wait_for(f"step {goal} and a checkpoint", lambda: ready() or process.poll() is not None)
        assert reached and process.poll() is None, process.communicate()
        victims = wait_for("both ranks", lambda: found if len(found := workers()) == 2 else None)
        # One failure of both: an agent that runs between the two kills keeps the second rank, whose death is a restart more.
        agent = parent_of(victims[0])
        os.kill(agent, signal.SIGSTOP)
        for pid in generator.sample(victims, 2):
            os.kill(pid, signal.SIGKILL)
        os.kill(agent, signal.SIGCONT)
        wait_for("its end", lambda: not set(victims) & set(workers()))
        restarted = time.time()
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert len(re.findall(r"goes on from \S+step-\d+\.safetensors", out)) == KILLS, out
    assert same_model(alone, killed)
    assert [step_of(path) for path in checkpoints(killed / "checkpoints")][-1] == steps


def samples(output):
    """{epoch: Counter of images} over the files of all ranks."""
    seen = collections.defaultdict(collections.Counter)
    for path in output.glob("samples-*.jsonl"):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            seen[entry["epoch"]].update(entry["images"])
    return seen


def test_with_2_then_3_then_1_ranks_every_sample_is_seen_once(tmp_path):
    more = ["--epochs", "2", "--checkpoint-every", "5", "--log-samples", "--resume", "auto", "--batch-size", "64"]
    for ranks, saved in ((2, 10), (3, 30)):
        process = start(command(ranks, tmp_path, *more))

        def is_beyond():
            """A step further than that checkpoint; a disk may take longer for it than the training for the next steps."""
            on_disk = max(map(step_of, checkpoints(tmp_path / "checkpoints")), default=0)
            return on_disk >= saved and steps_logged(tmp_path) > on_disk

        wait_for(f"checkpoint {saved}", lambda: is_beyond() or process.poll() is not None, 200)
        assert process.poll() is None, process.communicate()
        kill_everything(process)
    done = run(command(1, tmp_path, *more), timeout=280)
    assert done.returncode == 0, done.stderr
    position = re.search(r"epoch 2 after (\d+) of 4096 images", done.stdout)
    assert position and int(position.group(1)) > 0, done.stdout
    seen = samples(tmp_path)
    for epoch in (1, 2):
        assert seen[epoch] == collections.Counter(range(4096)), [n for n, times in seen[epoch].items() if times != 1]


@pytest.mark.parametrize("shared", [True, False], ids=["shared folder", "a folder each"])
def test_ranks_that_do_not_see_rank_0s_folder_are_sent_its_checkpoint(tmp_path, shared):
    for rank in "01":
        (tmp_path / rank).mkdir()
    folder = tmp_path / "0" if shared else '"$TOP/$RANK"'
    words = shlex.join([TRAIN, *SETTINGS, "--output-dir", "out", "--max-steps", "8", "--checkpoint-every", "4"])
    env = clean_environment(TOP=str(tmp_path))

    def train():
        done = run(
            [DDPRUN, "--standalone", "--nproc-per-node", "2", "sh", "-c", f"cd {folder} && exec {words} --resume auto"],
            env=env,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    train()
    out, alone = tmp_path / "0/out", tmp_path / "alone"
    alone.mkdir()
    (out / "cifar_net.pth").rename(alone / "cifar_net.pth")
    checkpoints(out / "checkpoints")[-1].unlink()
    said = train()
    assert "goes on from out/checkpoints/step-000000004.safetensors" in said, said
    assert same_model(alone, out)


def test_any_tool_opens_a_checkpoint(tmp_path):
    done = run([TRAIN, *SETTINGS, "--max-steps", "4", "--checkpoint-every", "2", "--output-dir", tmp_path])
    assert done.returncode == 0, done.stderr
    paths = checkpoints(tmp_path / "checkpoints")
    assert [step_of(path) for path in paths] == [2, 4]
    average = torch.load(tmp_path / "cifar_net.pth")
    with safe_open(paths[-1], framework="pt") as file:
        about = json.loads(file.metadata()["ddprun"])
        assert (about["step"], about["epoch"], about["consumed"]) == (4, 0, 16)
        assert about["config"]["model"] == "netresdeep" and about["data"]["classes"] == 10
        names = set(file.keys())
        assert {"optimizer/fc1.weight/momentum_buffer", "model/fc1.weight"} <= names, names
        assert torch.equal(file.get_tensor("ema/fc1.weight"), average["fc1.weight"])


def test_a_signal_saves_first(tmp_path):
    alone, stopped = tmp_path / "alone", tmp_path / "stopped"
    more = ["--max-steps", "20", "--log-samples", "--checkpoint-seconds", "1000", "--accumulate", "2", "--amp", "bf16"]
    assert run(command(2, alone, *more)).returncode == 0
    process = start(command(2, stopped, *more))
    wait_for("step 5", lambda: steps_logged(stopped) >= 5 or process.poll() is not None)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 143, err
    (path,) = checkpoints(stopped / "checkpoints")
    assert 5 <= step_of(path) < 20
    done = run(command(2, stopped, *more, "--resume", "auto"))
    assert f"goes on from {path}" in done.stdout, done.stdout
    assert same_model(alone, stopped)


@pytest.mark.parametrize(("number", "name"), [(signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "SIGINT")])
def test_alone_it_says_where_it_ended(tmp_path, number, name):
    more = ["--checkpoint-dir", tmp_path / "saved", "--log-samples", "--output-dir", tmp_path]
    process = start([TRAIN, *SETTINGS, *more])
    wait_for("step 5", lambda: steps_logged(tmp_path) >= 5 or process.poll() is not None)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, err
    (path,) = checkpoints(tmp_path / "saved")
    assert err.strip().splitlines() == [
        f"train: rank 0: ended by {name} after step {step_of(path)}; {path} holds it, pass --resume auto to go on"
    ]


def test_without_checkpoints_a_signal_ends_it_at_once(tmp_path):
    process = start([TRAIN, *SETTINGS, "--log-samples", "--output-dir", tmp_path])
    wait_for("step 2", lambda: steps_logged(tmp_path) >= 2 or process.poll() is not None)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM


def test_a_damaged_one_is_named_and_passed_over(tmp_path):
    more = ["--max-steps", "6", "--checkpoint-every", "2", "--output-dir", tmp_path, "--resume", "auto"]
    assert run([TRAIN, *SETTINGS, *more]).returncode == 0
    good, damaged = checkpoints(tmp_path / "checkpoints")
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 4
    damaged.write_bytes(content)
    done = run([TRAIN, *SETTINGS, *more])
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if "passed over" in line]
    assert len(told) == 1 and str(damaged) in told[0] and "checksum" in told[0], done.stdout
    assert f"goes on from {good}" in done.stdout, done.stdout


def test_a_folder_that_is_lost_does_not_end_the_training(tmp_path):
    saved = tmp_path / "saved"
    more = ["--checkpoint-dir", saved, "--checkpoint-every", "2", "--log-samples", "--max-steps", "40"]
    process = start(command(2, tmp_path, *more))
    wait_for("a checkpoint", lambda: checkpoints(saved) or process.poll() is not None)
    saved.rename(tmp_path / "away")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert re.search(r"checkpoint of step \d+ is not saved: cannot create .*No such file", out), out
    assert checkpoints(tmp_path / "away")
    assert (tmp_path / "cifar_net.pth").is_file()


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (["--model", "resnet18"], "of --model netresdeep, but this training is of --model resnet18"),
        (["--dataset", "fashion-mnist"], "of --dataset synthetic, but this training is of --dataset fashion-mnist"),
        (["--seed", "5"], "of --seed 0, but this training is of --seed 5"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused_by_all_ranks(tmp_path, other, says):
    more = ["--max-steps", "2", "--checkpoint-every", "2"]
    assert run(command(2, tmp_path, *more)).returncode == 0
    before = [path.read_bytes() for path in checkpoints(tmp_path / "checkpoints")]
    done = run(command(2, tmp_path, *more, *other, "--resume", "auto"))
    assert done.returncode == 2, done.stderr
    # The first rank to end with it may end the others before they have said it.
    assert f"train: the checkpoint to go on from is {says}" in done.stderr, done.stderr
    assert [path.read_bytes() for path in checkpoints(tmp_path / "checkpoints")] == before


def test_what_cannot_be_used_is_said_in_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    inside = tmp_path / "file" / "saved"
    none = tmp_path / "none.safetensors"
    small = [TRAIN, *SETTINGS, "--max-steps", "1", "--output-dir", tmp_path]
    for more, code, says in (
        (["--checkpoint-dir", inside], 2, f"--checkpoint-dir {inside} cannot be made: Not a directory"),
        (["--resume", none], 1, f"cannot open {none}: No such file or directory"),
        (["--resume", tmp_path / "file"], 1, "is not a whole safetensors file: it has only 0 bytes"),
        (["--resume", tmp_path], 1, f"there is no good checkpoint in {tmp_path}"),
    ):
        done = run([*small, *more])
        assert done.returncode == code, (more, done.stderr)
        assert len(done.stderr.strip().splitlines()) == 1 and says in done.stderr, done.stderr


def test_starting_anew_takes_nothing_from_an_earlier_training(tmp_path):
    more = ["--max-steps", "4", "--checkpoint-every", "2"]
    assert run(command(1, tmp_path, *more)).returncode == 0
    done = run(command(1, tmp_path, *more, "--max-steps", "3", "--lr", "0.02"))
    assert done.returncode == 0, done.stderr
    assert re.search(r"checkpoints of an earlier training, the newest of step 4", done.stdout), done.stdout
    assert "goes on" not in done.stdout
    assert [step_of(path) for path in checkpoints(tmp_path / "checkpoints")] == [2, 3]


def test_a_training_that_has_diverged_keeps_its_good_checkpoints(tmp_path):
    more = ["--checkpoint-every", "1", "--checkpoint-keep", "2", "--resume", "auto", "--output-dir", tmp_path]
    # A save that is due while the one before is still written is made later; that of the last step always is.
    for last in ("2", "3"):
        assert run([TRAIN, *SETTINGS, *more, "--max-steps", last]).returncode == 0
    good = checkpoints(tmp_path / "checkpoints")
    assert [step_of(path) for path in good] == [2, 3]
    # The update of the step after is beyond all numbers; its loss is not, and ends nothing yet.
    done = run([TRAIN, *SETTINGS, *more, "--max-steps", "4", "--lr", "1e39"])
    assert done.returncode != 0 and "goes on from" in done.stdout
    assert checkpoints(tmp_path / "checkpoints") == good
    for path in good:
        with safe_open(path, "pt") as file:
            assert all(file.get_tensor(name).double().isfinite().all() for name in file.keys())
    done = run([TRAIN, *SETTINGS, *more, "--max-steps", "5"])
    assert done.returncode == 0 and f"goes on from {good[-1]}" in done.stdout, done.stderr


def crc32c(data):
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    rest = 0xFFFFFFFF
    for byte in data:
        rest = rest >> 8 ^ table[(rest ^ byte) & 0xFF]
    return rest ^ 0xFFFFFFFF


def with_tensor(content, name, values):
    """A checkpoint's bytes with another tensor (uint8), and checksums that fit (checkpoint_file.h)."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    data, about, body = content[8 + length :], header.pop("__metadata__"), b""
    header[name] = {"dtype": "U8", "shape": [], "data_offsets": [0, 0]}
    for key, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        bytes_of = values if key == name else data[begin:end]
        entry["data_offsets"] = [len(body), len(body) + len(bytes_of)]
        body += bytes_of
    header[name]["shape"] = [len(values)]
    sums = json.loads(about["crc32c"])
    sums[name] = f"{crc32c(values):08x}"
    ordered = dict(sorted(header.items(), key=lambda item: item[1]["data_offsets"]))
    return with_header({"__metadata__": {**about, "crc32c": json.dumps(sums)}, **ordered}, body)


def with_header(header, body):
    """A checkpoint's bytes, with the checksum of the header."""
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    head = len(head).to_bytes(8, "little") + head
    return head + body[:-4] + crc32c(head).to_bytes(4, "little")


def with_buckets(content, buckets):
    """A checkpoint's bytes with another bucket layout; None: without one."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    about = json.loads(header["__metadata__"]["ddprun"])
    about["buckets"] = buckets
    if buckets is None:
        del about["buckets"]
    header["__metadata__"]["ddprun"] = json.dumps(about)
    return with_header(header, content[8 + length :])


def test_states_of_random_generators_are_not_needed(tmp_path):
    """Checkpoints had them before random numbers were seeded in each step."""
    more = ["--checkpoint-every", "2", "--resume", "auto"]
    assert run(command(2, tmp_path, *more, "--max-steps", "2")).returncode == 0
    (saved,) = checkpoints(tmp_path / "checkpoints")
    content = saved.read_bytes()
    for rank in range(2):
        content = with_tensor(content, f"random/{rank}", bytes(range(16)))
    saved.write_bytes(content)
    done = run(command(2, tmp_path, *more, "--max-steps", "4"))
    assert done.returncode == 0, done.stderr
    assert f"goes on from {saved}" in done.stdout, done.stdout
    with safe_open(checkpoints(tmp_path / "checkpoints")[-1], "pt") as file:
        assert not [name for name in file.keys() if name.startswith("random/")]


def test_a_layout_of_buckets_that_does_not_fit_is_left(tmp_path):
    """Checkpoints had none at first. Of two ranks the sums are the same in any."""
    more = ["--checkpoint-every", "2", "--resume", "auto"]
    assert run(command(2, tmp_path, *more, "--max-steps", "4")).returncode == 0
    saved, last = checkpoints(tmp_path / "checkpoints")
    alone, content = last.read_bytes(), saved.read_bytes()
    with safe_open(saved, "pt") as file:
        layout = json.loads(file.metadata()["ddprun"])["buckets"]
    places = sorted(place for bucket in layout for place in bucket)
    assert places == list(range(len(places))) and len(places) > 1
    for odd in (None, [], [[]], [places[:-1]], [[*places, len(places)]], [[place] for place in places], [[-1]], "all"):
        saved.write_bytes(with_buckets(content, odd))
        last.unlink()
        done = run(command(2, tmp_path, *more, "--max-steps", "4"))
        assert done.returncode == 0, (odd, done.stderr)
        assert f"goes on from {saved}" in done.stdout, (odd, done.stdout)
        assert last.read_bytes() == alone, odd
