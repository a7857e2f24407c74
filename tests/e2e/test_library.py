# SPDX-License-Identifier: Apache-2.0
"""libddprun as its users have it: installed, moved, found by CMake or pkg-config, and built upon by the examples. One of them
is built from the installed package, the others with the build."""

import contextlib
import gzip
import json
import os
import pathlib
import re
import shutil
import signal
import sys

import pytest
from conftest import BUILD, DDPRUN, REPO, TRAIN, clean_environment, free_port, processes_of_this_session, run, start
from conftest import torch_folder, torch_minor, wait_for

sys.path.insert(0, str(REPO / "tests" / "testing"))
from faults import Faults, with_limit  # noqa: E402

EXAMPLES = REPO / "worker/examples"
MAN_PAGES = pathlib.Path("/usr/share/man/man1")
IMAGES = pathlib.Path("/usr/share/datasets/fashion-mnist")
SAVE_EVERY = 200  # steps; 500 in the example itself

pytestmark = pytest.mark.skipif(not (BUILD / "lib/libddprun.a").exists(), reason="built without libddprun.a")


@pytest.fixture(autouse=True)
def nothing_is_left():
    """A test that fails leaves no run behind that others would see."""
    yield
    for pid, _ in processes_of_this_session():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The package, moved after it was installed."""
    folder = tmp_path_factory.mktemp("library")
    done = run(["cmake", "--install", BUILD, "--prefix", folder / "made", "--component", "dev"])
    assert done.returncode == 0, done
    (folder / "made").rename(folder / "moved")
    return folder / "moved"


@pytest.fixture(scope="module")
def fashion_mnist(installed, tmp_path_factory):
    """The example's program, made from the installed package."""
    source, folder = tmp_path_factory.mktemp("example") / "fashion_mnist", tmp_path_factory.mktemp("built")
    shutil.copytree(EXAMPLES / "fashion_mnist", source)
    text = (source / "main.cc").read_text()
    assert ".every_steps = 500" in text
    (source / "main.cc").write_text(text.replace(".every_steps = 500", f".every_steps = {SAVE_EVERY}"))
    flags = [f"-DCMAKE_PREFIX_PATH={installed}", f"-DDDPRUN_TORCH_DIR={torch_folder()}", "-DCMAKE_BUILD_TYPE=Release"]
    if shutil.which("ccache"):
        flags += ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"]
    env = clean_environment(CCACHE_BASEDIR=str(tmp_path_factory.getbasetemp()), CCACHE_NOHASHDIR="1")
    for command in (["cmake", "-S", source, "-B", folder, *flags], ["cmake", "--build", folder]):
        done = run(command, timeout=300, env=env)
        assert done.returncode == 0, done
    return folder / "fashion_mnist"


@pytest.fixture
def built(request):
    """The program of an example, by its name."""
    return lambda name: request.getfixturevalue(name) if name == "fashion_mnist" else BUILD / "tests" / f"example_{name}"


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    for packed in IMAGES.glob("*.gz"):
        (folder / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
    return folder


def launch(*arguments, **options):
    return run([DDPRUN, "--standalone", *arguments], timeout=120, **options)


def tensors(checkpoint):
    """Name -> bytes, of a safetensors file."""
    data = checkpoint.read_bytes()
    length = int.from_bytes(data[:8], "little")
    entries = json.loads(data[8 : 8 + length])
    body = data[8 + length :]
    return {name: body[slice(*entry["data_offsets"])] for name, entry in entries.items() if name != "__metadata__"}


def model(checkpoint):
    return {name: value for name, value in tensors(checkpoint).items() if name.startswith("model/")}


def newest(folder):
    return sorted(folder.glob("step-*.safetensors"))[-1]


def wait_for_step(folder, step):
    """Until a checkpoint of that step or a later one is there."""
    name = f"step-{step:09}.safetensors"
    wait_for(name, lambda: any(path.name >= name for path in folder.glob("step-*.safetensors")))


def test_nothing_but_ddprun_is_shown():
    """No Protobuf, gRPC or Abseil that could meet another version of it in a program."""
    shown = run(["nm", "--defined-only", "--extern-only", "-C", BUILD / "lib/libddprun.a"]).stdout
    names = [line.split(maxsplit=2)[2] for line in shown.splitlines() if len(line.split()) >= 3]
    assert len(names) > 50
    assert [name for name in names if "ddprun::" not in name] == []
    assert [name for name in names if re.search(r"absl|google|grpc|nlohmann", name)] == []


def test_headers_include_nothing_of_the_insides(installed):
    headers = sorted((installed / "include/ddprun").rglob("*.h"))
    assert len(headers) > 8
    for header in headers:
        included = re.findall(r'^#include [<"]([^>"]+)[>"]', header.read_text(), re.MULTILINE)
        assert not [name for name in included if re.match(r"(proto|rendezvous|worker|absl|google|grpc|nlohmann)/", name)], header


def test_the_small_trainer_is_train(built, images, tmp_path):
    """Twenty steps of two ranks: the parameters of `train` with the same settings."""
    program = built("fashion_mnist")
    done = launch("--nproc-per-node", "2", program, images, tmp_path / "own", "20")
    assert done.returncode == 0, done
    settings = ["--model", "simple-cnn", "--dataset", "fashion-mnist", "--lr", "0.02", "--schedule", "constant"]
    settings += ["--warmup-epochs", "0", "--no-nesterov", "--weight-decay", "0", "--max-steps", "20", "--no-eval"]
    done = launch("--nproc-per-node", "2", TRAIN, *settings, "--checkpoint-every", "20", "--output-dir", tmp_path / "train")
    assert done.returncode == 0, done
    own, other = model(newest(tmp_path / "own")), model(newest(tmp_path / "train/checkpoints"))
    assert len(own) == 10 and own.keys() == other.keys()
    numpy = pytest.importorskip("numpy")
    for name, value in own.items():
        ours, theirs = (numpy.frombuffer(bytes_, numpy.float32) for bytes_ in (value, other[name]))
        assert numpy.abs(ours - theirs).max() <= 1e-6, name


def train_apart(program, images, folder, steps, *flags, env=None):
    command = [DDPRUN, "--standalone", "--nproc-per-node", "2", *flags, program, images, folder, steps]
    return start(["sh", "-c", 'exec "$@" 2>&1', "-", *command], env=env)


def read_until(process, text):
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError(f"no {text!r} in {lines}")


def told_to_stop(process):
    """What it says from SIGTERM on, which is its end."""
    process.send_signal(signal.SIGTERM)
    rest = process.stdout.read()
    assert process.wait(60) == 128 + signal.SIGTERM, rest
    return rest


def workers_of(program):
    """Process ids of this session's ranks, spares among them."""
    return [int(pid) for pid, command in processes_of_this_session() if command.startswith(str(program))]


def test_a_rank_that_dies_is_replaced_in_place(built, images, tmp_path):
    """The other process stays, and the end is that of a run that nobody disturbed, bit by bit."""
    program = built("fashion_mnist")
    plain = launch("--nproc-per-node", "2", program, images, tmp_path / "plain", "200")
    assert plain.returncode == 0, plain
    process = train_apart(program, images, tmp_path / "killed", 200, "--max-restarts", "1")
    before = read_until(process, "step 100 ")
    stays, dies = sorted(workers_of(program))
    os.kill(dies, signal.SIGKILL)
    after = read_until(process, "goes on after step")
    assert stays in workers_of(program)
    rest = process.stdout.read()
    assert process.wait(60) == 0, (before, after, rest)
    assert tensors(newest(tmp_path / "plain")).keys() == tensors(newest(tmp_path / "killed")).keys()
    assert model(newest(tmp_path / "plain")) == model(newest(tmp_path / "killed"))


def is_spare(pid):
    return b"\0DDPRUN_PARKED=1\0" in pathlib.Path(f"/proc/{pid}/environ").read_bytes()


def listens(pid):
    """It waits for what its agent sends: its thread has the epoll and the sockets of that."""
    links = [os.readlink(path) for path in pathlib.Path(f"/proc/{pid}/fd").iterdir()]
    return any("eventpoll" in link for link in links) and sum("socket:" in link for link in links) >= 2


@pytest.mark.nightly
def test_a_spare_takes_the_place_of_a_rank_that_dies(built, images, tmp_path):
    """It was started before; whatever is started then is a spare again."""
    program = built("fashion_mnist")
    process = train_apart(program, images, tmp_path, 100_000, "--max-restarts", "1", "--spares", "1")
    read_until(process, "step 100 ")
    before = set(workers_of(program))
    dies = next(pid for pid in before if not is_spare(pid))
    (spare,) = (pid for pid in before if is_spare(pid))
    wait_for("the spare", lambda: listens(spare))
    read_until(process, "loss")  # and its agent knows
    os.kill(dies, signal.SIGKILL)
    read_until(process, "goes on after step")
    read_until(process, "loss")
    after = set(workers_of(program))
    assert before - after == {dies} and all(is_spare(pid) for pid in after - before)
    told_to_stop(process)


def test_a_checkpoint_that_the_disk_does_not_take_is_told(built, images, tmp_path):
    """The training goes on without it; one that has none of its end fails on all ranks, and no signal kills it."""
    command = [DDPRUN, "--standalone", "--nproc-per-node", "2", built("fashion_mnist"), images, tmp_path / "run", str(2 * SAVE_EVERY + 1)]
    done = run(with_limit("--fsize=100000", command))
    said = done.stdout + done.stderr
    assert done.returncode == 1 and "SIGXFSZ" not in said, done
    assert f"checkpoint of step {SAVE_EVERY} is not saved" in said and "training goes on" in said, done
    assert len(re.findall(rf"fashion_mnist: checkpoint of step {2 * SAVE_EVERY + 1} is not saved: .*[Ff]ile too large", said)) == 2, done
    assert not list((tmp_path / "run").glob("step-*")), done


def train_with_faults(program, images, folder):
    """At step 100: the faults of its disk, its folder and its process."""
    faults = Faults(folder)
    process = train_apart(program, images, folder / "run", 100_000, env=clean_environment(**faults.env()))
    read_until(process, "step 100 ")
    return faults, folder / "run", process


def test_a_disk_that_is_full_for_a_while_costs_the_checkpoints_of_that_time(built, images, tmp_path):
    faults, folder, process = train_with_faults(built("fashion_mnist"), images, tmp_path)
    faults.set(f"write ENOSPC path={folder}/step")
    read_until(process, f"checkpoint of step {SAVE_EVERY} is not saved")
    faults.clear()
    wait_for_step(folder, 2 * SAVE_EVERY)
    assert "holds it" in told_to_stop(process)


def test_a_disk_that_hangs_holds_up_no_step_before_the_next_save(built, images, tmp_path):
    faults, folder, process = train_with_faults(built("fashion_mnist"), images, tmp_path)
    faults.set(f"write hang path={folder}/step")
    faults.wait_for_hit("write hang")
    read_until(process, f"step {SAVE_EVERY + 100} ")
    assert not list(folder.glob("step-*.safetensors"))
    faults.clear()
    wait_for_step(folder, 2 * SAVE_EVERY)
    assert "holds it" in told_to_stop(process)


def test_a_node_that_joins_takes_part_and_one_that_ends_is_left_out(built, images, tmp_path):
    """The first node's process stays through both, and goes on after its last step."""
    program = built("fashion_mnist")
    flags = ["--nnodes", "1:2", "--nproc-per-node", 1, "--master-addr", "127.0.0.1", "--master-port", free_port()]
    flags += ["--insecure", "--last-call", 0.5, "--on-join", "restart", "--max-restarts", 1]
    worker = [program, images, tmp_path / "run", 1_000_000]
    first, second = (["sh", "-c", 'exec "$@" 2>&1', "-", DDPRUN, *flags, "--node-rank", rank, *worker] for rank in range(2))
    first = start(first)
    read_until(first, "step 100 ")
    (stays,) = workers_of(program)
    second = start(second)
    grown = read_until(first, "with 2 ranks")[-1]
    assert "the state is rank 0's" in grown and int(re.search(r"after step (\d+)", grown)[1]) >= 100
    read_until(first, "loss")
    second.kill()
    second.communicate()
    read_until(first, "with 1 rank;")
    read_until(first, "loss")
    assert workers_of(program) == [stays]
    assert "holds it" in told_to_stop(first)


def test_told_to_stop_it_saves_and_goes_on_from_there(built, images, tmp_path):
    program = built("fashion_mnist")
    process = train_apart(program, images, tmp_path / "run", 100_000)
    read_until(process, "step 100 ")
    process.send_signal(signal.SIGTERM)
    rest = process.stdout.read()
    assert "ended by SIGTERM after step" in rest and "holds it" in rest, rest
    assert process.wait(60) == 128 + signal.SIGTERM, rest
    step = int(re.search(r"step-0*(\d+)", newest(tmp_path / "run").name)[1])
    done = launch("--nproc-per-node", "2", program, images, tmp_path / "run", str(step + 5))
    assert done.returncode == 0 and f"step {step}" in done.stdout + done.stderr, done
    plain = launch("--nproc-per-node", "2", program, images, tmp_path / "plain", str(step + 5))
    assert plain.returncode == 0, plain
    assert model(newest(tmp_path / "run")) == model(newest(tmp_path / "plain"))


def two_networks(folder, way, *flags):
    return launch("--nproc-per-node", "2", *flags, BUILD / "tests/two_networks", folder, way, "5")


def sum_of(done):
    assert done.returncode == 0, done
    return re.search(r"sum \S+ after step \d+", done.stdout)[0]


def test_schedules_and_random_numbers_go_on_where_they_were(tmp_path):
    """Two optimizers, of which one has made its step when a rank dies or is told to stop."""
    plain = sum_of(two_networks(tmp_path / "plain", "go"))
    killed = two_networks(tmp_path / "killed", "die", "--max-restarts", "1")
    assert "goes on after step 22 with 2 ranks; the state is rank 0's" in killed.stdout + killed.stderr, killed
    assert sum_of(killed) == plain
    stopped = two_networks(tmp_path / "stopped", "stop")
    assert stopped.returncode == 128 + signal.SIGTERM, stopped
    assert re.search(r"ended by SIGTERM after step \d+; ", stopped.stdout + stopped.stderr), stopped
    assert sum_of(two_networks(tmp_path / "stopped", "go")) == plain


def test_a_checkpoint_of_another_program_is_refused(built, images, tmp_path):
    done = launch("--nproc-per-node", "2", built("transformer"), MAN_PAGES / "bash.1.gz", tmp_path / "run", "3")
    assert done.returncode == 0, done
    done = launch("--nproc-per-node", "2", built("fashion_mnist"), images, tmp_path / "run", "3")
    assert done.returncode == 1 and "does not fit" in done.stderr + done.stdout, done


def test_it_runs_without_a_launcher_and_knows_when_it_is_done(built, images, tmp_path):
    for _ in range(2):
        done = run([built("fashion_mnist"), images, tmp_path / "alone", "3"], timeout=60)
        assert done.returncode == 0 and newest(tmp_path / "alone").name == "step-000000003.safetensors", done


def test_the_transformer_learns_from_manual_pages(built, tmp_path):
    """Gradient accumulation, bfloat16 between the ranks, the optimizer's state divided among them; and on with one rank."""
    text = tmp_path / "text"
    pages = sorted(MAN_PAGES.glob("*.gz"), key=lambda page: page.stat().st_size)[-8:]
    text.write_bytes(b"".join(gzip.decompress(page.read_bytes()) for page in pages))
    done = launch("--nproc-per-node", "2", built("transformer"), text, tmp_path / "run", "150")
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", done.stdout)]
    assert done.returncode == 0 and len(losses) == 4 and losses[0] > 4 and losses[-1] < 2.8, done
    done = launch("--nproc-per-node", "1", built("transformer"), text, tmp_path / "run", "200")
    assert done.returncode == 0 and float(re.findall(r"loss ([\d.]+)", done.stdout)[0]) < 2.8, done


def test_the_spirals_are_told_apart(built, tmp_path):
    """Two optimizers, a schedule and an evaluation over the ranks; ended after half of its epochs and started again, all are as in one
    go."""

    def epochs(folder, number):
        done = launch("--nproc-per-node", "2", built("spirals"), tmp_path / folder, str(number))
        assert done.returncode == 0, done
        return re.findall(r"rate (\S+) accuracy (\S+)", done.stdout)

    whole = epochs("whole", 30)
    assert len(whole) == 30 and float(whole[0][1]) < 0.8 and float(whole[-1][1]) > 0.95, whole
    assert [rate for rate, _ in whole[14:17]] == ["0.0100", "0.0030", "0.0030"]  # LibTorch's StepLR is a step later than Python's
    assert epochs("halves", 16) + epochs("halves", 30) == whole


def test_the_pipeline_learns_over_three_ranks(built):
    done = launch("--nproc-per-node", "3", built("pipeline"), "200")
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", done.stdout)]
    assert done.returncode == 0 and losses[-1] < losses[0] / 2, done


def test_the_wrong_torch_is_named(installed, tmp_path):
    wrong = tmp_path / "torch"
    (wrong / "lib").mkdir(parents=True)
    (wrong / "lib/libtorch_cpu.so").touch()
    (wrong / "version.py").write_text("__version__ = '2.6.0'\n")
    flags = [f"-DCMAKE_PREFIX_PATH={installed}", f"-DDDPRUN_TORCH_DIR={wrong}"]
    done = run(["cmake", "-S", EXAMPLES / "pipeline", "-B", tmp_path / "build", *flags])
    said = " ".join(done.stderr.split())  # CMake breaks lines by their length, and paths differ in theirs
    assert done.returncode != 0 and f"is built for LibTorch {torch_minor()}," in said and "is 2.6" in said, done


def test_the_torch_that_it_was_built_with_is_found(installed, tmp_path):
    """As after the quickstart, where python3 has none."""
    flags = [f"-DCMAKE_PREFIX_PATH={installed}", "-DCMAKE_BUILD_TYPE=Release"]
    env = {name: value for name, value in os.environ.items() if name != "DDPRUN_TORCH_DIR"} | {"PATH": "/usr/bin:/bin"}
    done = run(["cmake", "-S", EXAMPLES / "pipeline", "-B", tmp_path / "build", *flags], env=env)
    assert done.returncode == 0, done


def test_pkg_config_names_it(installed):
    env = dict(os.environ, PKG_CONFIG_PATH=str(next(installed.rglob("pkgconfig"))))
    done = run(["pkg-config", "--cflags", "--libs", "ddprun"], env=env)
    assert done.returncode == 0 and str(installed) in done.stdout and "-lddprun" in done.stdout, done


LEAVING = BUILD / "tests/leaving_rank"  # calls one collective; its rank 1 leaves, where it is told to
LEFT = "rank 1 has returned from the function of Main() and will not call all_reduce 2, in which rank 0 waits for it"


def test_a_rank_that_returns_early_does_not_leave_the_others_waiting():
    done = run([DDPRUN, "--standalone", "--nproc-per-node", 2, LEAVING, "return"], timeout=60)
    assert done.returncode == 1
    assert f"leaving_rank: {LEFT}; let every rank call the same collectives" in done.stderr, done.stderr
    assert "collectives: rank 0 waits in all_reduce 2 (12 bytes float32); rank 1 has not begun it: its last was all_reduce 1" in done.stderr


def test_the_verdict_begins_with_a_rank_that_exits_early():
    done = run([DDPRUN, "--standalone", "--nproc-per-node", 2, LEAVING, "exit"], timeout=60)
    assert done.returncode == 1
    assert re.search(
        r"run failed: rank 1 \(.*\) exited with code 0 after .* s, while others waited for it in all_reduce 2, round 1", done.stderr
    ), done.stderr
    assert "last lines of rank 1:\n    the data set is empty, leaving" in done.stderr


def test_a_rank_that_returns_later_is_waited_for():
    done = run([DDPRUN, "--standalone", "--nproc-per-node", 2, "--hang-timeout", 3, LEAVING], timeout=60)
    assert done.returncode == 0, done.stderr
