# SPDX-License-Identifier: Apache-2.0
"""Python programs written for torchrun run unchanged, and see the same."""

import json
import pathlib
import re
import signal

import pytest
from conftest import DDPRUN, TORCHRUN, clean_environment, finish_all, free_port, run, start

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = HERE / "all_reduce_and_ddp.py"
SAYS = re.compile(r"rank \d+ of \d+: .*")


def said(text):
    return sorted(SAYS.findall(text))


def test_all_reduce_and_ddp_on_two_nodes_as_under_torchrun(port):
    command = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(port), "--nproc-per-node", "1"]
    ours = finish_all([start([DDPRUN, *command, "--node-rank", rank, PROGRAM]) for rank in "01"])
    theirs_port = free_port()
    command = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={theirs_port}", "--nproc-per-node=1"]
    theirs = finish_all([start([*TORCHRUN, *command, "--node-rank", rank, PROGRAM]) for rank in "01"])

    assert [code for code, _, _ in ours] == [0, 0], ours
    assert [code for code, _, _ in theirs] == [0, 0], theirs
    ours = said("".join(out for _, out, _ in ours))
    theirs = said("".join(out for _, out, _ in theirs))
    assert len(ours) == 2
    assert ours == theirs
    assert "sum 3.0" in ours[0]


@pytest.mark.nightly
def test_four_workers_on_one_node():
    done = run([DDPRUN, "--standalone", "--nproc-per-node", "4", PROGRAM])
    assert done.returncode == 0, done.stderr
    assert len(said(done.stdout)) == 4
    assert "sum 10.0" in done.stdout


def test_a_restart_gives_a_fresh_store(tmp_path):
    """The second round meets at another port and reads no key of the first."""
    program = tmp_path / "fails_once.py"
    program.write_text(
        "import os, sys, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "store = dist.distributed_c10d._get_default_store()\n"
        "assert not store.check(['left']), 'a key of an earlier round is visible'\n"
        "dist.barrier()\n"
        "store.set('left', 'behind')\n"
        "dist.barrier()\n"
        "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
        "    sys.exit(3)\n"
        "print('done in restart', os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
        "dist.destroy_process_group()\n"
    )
    done = run([DDPRUN, "--standalone", "--nproc-per-node", "2", "--max-restarts", "1", program])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("done in restart 1") == 2


ENVIRONMENT = (
    "import json, os, sys\n"
    "names = ['RANK','LOCAL_RANK','WORLD_SIZE','LOCAL_WORLD_SIZE','GROUP_RANK','GROUP_WORLD_SIZE','ROLE_RANK',\n"
    "         'ROLE_NAME','ROLE_WORLD_SIZE','TORCHELASTIC_RESTART_COUNT','TORCHELASTIC_MAX_RESTARTS',\n"
    "         'TORCHELASTIC_RUN_ID','TORCH_NCCL_ASYNC_ERROR_HANDLING','MASTER_ADDR']\n"
    "with open(f\"{sys.argv[1]}/{os.environ['RANK']}.json\", 'w') as file:\n"
    "    json.dump({name: os.environ.get(name) for name in names}, file)\n"
)


def test_workers_see_the_environment_that_torchrun_gives(tmp_path):
    """In files of their own: under torchrun two workers' lines may come out as one."""
    program = tmp_path / "environment.py"
    program.write_text(ENVIRONMENT)
    common = ["--nnodes=2", "--nproc-per-node=2", "--max-restarts=3", "--rdzv-id=job7", "--master-addr=127.0.0.1"]
    seen = {}
    for name, launcher in (("ddprun", [DDPRUN]), ("torchrun", TORCHRUN)):
        folder = tmp_path / name
        folder.mkdir()
        nodes = [*launcher, *common, f"--master-port={free_port()}"]
        results = finish_all([start([*nodes, f"--node-rank={rank}", program, folder]) for rank in "01"])
        assert [code for code, _, _ in results] == [0, 0], results
        seen[name] = {path.name: json.loads(path.read_text()) for path in folder.iterdir()}
    assert sorted(seen["ddprun"]) == [f"{rank}.json" for rank in range(4)]
    assert seen["ddprun"] == seen["torchrun"]


def test_a_module_runs_with_m(tmp_path):
    (tmp_path / "greeting.py").write_text("import os, sys\nprint('rank', os.environ['RANK'], sys.argv[1:])\n")
    done = run(
        [DDPRUN, "--standalone", "--nproc_per_node", "2", "-m", "greeting", "--flag", "$$x"],
        env=clean_environment(PYTHONPATH=str(tmp_path)),
    )
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        assert f"rank {rank} ['--flag', '$$x']" in done.stdout


def test_what_a_recorded_program_raised_is_in_the_verdict(tmp_path):
    program = tmp_path / "raises.py"
    program.write_text(
        "import os\n"
        "from torch.distributed.elastic.multiprocessing.errors import record\n"
        "@record\n"
        "def main():\n"
        "    if os.environ['RANK'] == '1':\n"
        "        raise ValueError('the moon is in the wrong phase')\n"
        "    import time; time.sleep(600)\n"
        "main()\n"
    )
    done = run([DDPRUN, "--standalone", "--nproc-per-node", "2", program])
    assert done.returncode == 1
    assert "the moon is in the wrong phase" in done.stderr
    assert "rank 1" in done.stderr


# Its data loader has no handler for SIGTERM, and the rest of the epoch needs it.
SAVES = """
import multiprocessing, pathlib, signal, sys

def load(pipe):
    while True:
        pipe.send(pipe.recv())

pipe, other = multiprocessing.Pipe()
multiprocessing.Process(target=load, args=(other,), daemon=True).start()
other.close()
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))
print("ready", flush=True)
left = 1000
while left > 0:
    pipe.send("batch")
    pipe.recv()
    left -= bool(told)
pathlib.Path(sys.argv[1]).write_text("saved")
"""


@pytest.mark.parametrize("flags, saves", [([], True), (["--signal-scope", "worker"], True), (["--signal-scope", "group"], False)])
def test_a_data_loader_lives_until_the_epoch_is_saved(tmp_path, flags, saves):
    (tmp_path / "job.py").write_text(SAVES)
    process = start([DDPRUN, "--standalone", *flags, tmp_path / "job.py", tmp_path / "checkpoint"])
    assert process.stdout.readline() == "[0] ready\n"
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143, err
    assert (tmp_path / "checkpoint").exists() == saves
