# SPDX-License-Identifier: Apache-2.0
"""torch's own client of TCPStore at the agents' ports: init_process_group() unchanged, on one node and on two."""

import pathlib
import re
import signal
import socket
import sys

import pytest
from conftest import BIN, DDPRUN, clean_environment, finish_all, free_port, run, start, wait_for
from hosts import three_hosts, two_hosts  # noqa: F401  (fixtures)

JOB = """
import datetime, os, sys
import torch, torch.distributed as dist

TIMEOUT = datetime.timedelta(seconds=60)
dist.init_process_group("gloo", timeout=TIMEOUT)
rank, world = dist.get_rank(), dist.get_world_size()
total = torch.tensor([rank + 1.0])
dist.all_reduce(total)
store = dist.distributed_c10d._get_default_store()
assert not store.check(["left"]), "a key of an earlier round"
dist.barrier()
store.set("left", "behind")
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    if rank == world - 1:
        sys.exit(3)
    dist.barrier()
# What vLLM and others do: a store of their own beside the launcher's.
port = int(store.get("own port")) if rank else None
own = None
if rank == 0:
    own = dist.TCPStore(os.environ["MASTER_ADDR"], 0, world, True, TIMEOUT, wait_for_workers=False)
    store.set("own port", str(own.port))
elif os.environ["MASTER_ADDR"] != "127.0.0.1" or os.environ["GROUP_WORLD_SIZE"] == "1":
    own = dist.TCPStore(os.environ["MASTER_ADDR"], port, world, False, TIMEOUT, wait_for_workers=False)
if own is not None:
    own.add("there", 1)
dist.barrier()
print(f"rank {rank} of {world}: sum {total.item()}", os.environ["TORCHELASTIC_USE_AGENT_STORE"],
      os.environ["MASTER_ADDR"], flush=True)
dist.barrier()
dist.destroy_process_group()
"""


WARM = ("--preload", "torch")  # to import torch takes each rank two seconds of CPU time


@pytest.fixture
def job(tmp_path):
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return path


WHO = ["agent", "rank0", pytest.param("master", marks=pytest.mark.nightly)]  # serves the workers' store


def on_one_node(folder, program, *flags):
    """What the workers print."""
    path = folder / "program.py"
    path.write_text(program)
    done = run([DDPRUN, *WARM, *flags, path])
    assert done.returncode == 0, done.stderr
    return done.stdout


def said(results):
    assert [code for code, _, _ in results] == [0] * len(results), results
    lines = re.findall(r"rank \d of .*", "".join(out for _, out, _ in results))
    return sorted(lines)


@pytest.mark.parametrize("who", WHO)
def test_one_node_with_a_restart(job, who):
    done = run([DDPRUN, "--standalone", *WARM, "--nproc-per-node", "2", "--max-restarts", "1", "--worker-store", who, job])
    served = who != "rank0"
    assert said([(done.returncode, done.stdout, done.stderr)]) == [
        f"rank {rank} of 2: sum 3.0 {served} 127.0.0.1" for rank in (0, 1)
    ]


@pytest.mark.parametrize("who", ["agent", *(pytest.param(who, marks=pytest.mark.nightly) for who in ("rank0", "master"))])
def test_two_nodes_with_a_restart(two_hosts, job, who):  # noqa: F811
    results = finish_all(
        [
            start(
                [*host.prefix, DDPRUN, "--nnodes", "2", "--node-rank", rank, "--master-addr", two_hosts[0].address]
                + ["--nproc-per-node", "2", "--max-restarts", "1", "--worker-store", who, *WARM, job]
            )
            for rank, host in enumerate(two_hosts)
        ]
    )
    address = "127.0.0.1" if who == "agent" else two_hosts[0].address
    served = who != "rank0"
    assert said(results) == [f"rank {rank} of 4: sum 10.0 {served} {address}" for rank in range(4)]


def test_an_elastic_run_of_one_node_so_far(job):
    flags = ["--nnodes", "1:2", "--last-call", "0.1", "--node-rank", "0", "--master-addr", "127.0.0.1"]
    flags += ["--master-port", free_port(), "--max-restarts", "1", "--worker-store", "agent", *WARM]
    done = run([DDPRUN, *flags, "--nproc-per-node", "2", job])
    assert said([(done.returncode, done.stdout, done.stderr)]) == [
        f"rank {rank} of 2: sum 3.0 True 127.0.0.1" for rank in (0, 1)
    ]


def test_the_store_outlives_rank_0(tmp_path):
    program = (
        "import os, time\n"
        "import torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "store = dist.distributed_c10d._get_default_store()\n"
        "if dist.get_rank() == 0:\n"
        "    store.set('rank 0', str(os.getpid()))\n"
        "else:\n"
        "    pid = int(store.get('rank 0'))\n"
        "    while os.path.exists(f'/proc/{pid}'):\n"
        "        time.sleep(0.01)\n"
        "    store.set('later', 'yes')\n"
        "    print('still there:', store.get('later').decode())\n"
    )
    assert "still there: yes" in on_one_node(tmp_path, program, "--standalone", "--nproc-per-node", "2")


def test_a_store_of_the_programs_own_by_torchruns_variable(job):
    done = run(
        [DDPRUN, "--standalone", "--max-restarts", "1", job], env=clean_environment(TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
    )
    assert said([(done.returncode, done.stdout, done.stderr)]) == ["rank 0 of 1: sum 1.0 False 127.0.0.1"]


def test_a_queue_of_torchs_client(tmp_path):
    """Each value goes to one of those that wait, and to none twice."""
    program = (
        "import torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "store = dist.distributed_c10d._get_default_store()\n"
        "if dist.get_rank() == 0:\n"
        "    for i in range(60):\n"
        "        store.queue_push('q', str(i))\n"
        "    seen = store.multi_get(['seen 1', 'seen 2', 'seen 3'])\n"
        "    assert sorted(int(n) for s in seen for n in s.decode().split()) == list(range(60)), seen\n"
        "    print('all once')\n"
        "else:\n"
        "    seen = [store.queue_pop('q').decode() for _ in range(20)]\n"
        "    store.set(f'seen {dist.get_rank()}', ' '.join(seen))\n"
        "dist.barrier()\n"
    )
    assert "all once" in on_one_node(tmp_path, program, "--standalone", "--nproc-per-node", "4")


def test_another_machine_is_rejected(three_hosts, tmp_path):  # noqa: F811
    first, second, third = three_hosts
    waits = f'echo "at $MASTER_ADDR $MASTER_PORT" >> {tmp_path}/at; while [ ! -e {tmp_path}/end ]; do sleep 0.05; done'
    nodes = [
        start(
            [*host.prefix, DDPRUN, "--nnodes", "2", "--node-rank", rank, "--master-addr", first.address]
            + ["--no-python", "sh", "-c", waits]
        )
        for rank, host in enumerate((first, second))
    ]
    at = tmp_path / "at"
    wait_for("both workers", lambda: at.exists() and at.read_text().count("at ") == 2, 60)
    _, address, port = at.read_text().split()[:3]
    asks = (
        "import socket, sys\n"
        "s = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20)\n"
        "s.sendall(bytes.fromhex('00cef7853c0d01020304'))\n"
        "s.settimeout(20)\n"
        "try:\n"
        "    print('got', len(s.recv(4)))\n"
        "except ConnectionResetError:\n"
        "    print('got 0')\n"
    )
    got = [
        finish_all([start([*host.prefix, sys.executable, "-c", asks, address, port])])[0] for host in (second, third, first)
    ]
    (tmp_path / "end").touch()
    results = finish_all(nodes)
    assert [out.strip() for _, out, _ in got] == ["got 4", "got 0", "got 4"], got
    assert [code for code, _, _ in results] == [0, 0], results
    assert re.search(rf"refused a connection from {re.escape(third.address)} to the workers' store", results[0][2])


def test_a_taken_master_port_is_named(job):
    with socket.socket() as taken:
        port = free_port()
        taken.bind(("127.0.0.1", port))
        taken.listen()
        done = run([DDPRUN, "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", port, job])
    assert done.returncode == 1
    assert f"port {port} at 127.0.0.1 is in use" in done.stderr


def test_a_fixed_port_over_restarts(tmp_path):
    program = (
        "import os, sys\n"
        "import torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "dist.barrier()\n"
        "count = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
        "print('at', os.environ['MASTER_PORT'], 'in', count, flush=True)\n"
        "sys.exit(0 if count == 2 else 3)\n"
    )
    port = free_port()
    said_by = on_one_node(tmp_path, program, "--master-port", port, "--nproc-per-node", "2", "--max-restarts", "2")
    assert set(re.findall(r"at \d+ in \d", said_by)) == {f"at {port} in {count}" for count in range(3)}


def test_the_service_may_die_while_a_program_sets_up(tmp_path):
    """The clients' connections end at the agents, which wait for the service to come back."""
    port = free_port()
    service = [BIN / "ddprun-rendezvous", "--host", "127.0.0.1", "--port", port, "--journal", tmp_path / "journal"]
    gone = tmp_path / "gone"
    program = tmp_path / "sets_up.py"
    program.write_text(
        "import os, pathlib, time\n"
        "import torch.distributed as dist\n"
        f"gone = pathlib.Path({str(gone)!r})\n"
        "pathlib.Path(str(gone) + '.ready' + os.environ['RANK']).touch()\n"
        "while not gone.exists():\n"
        "    time.sleep(0.01)\n"
        "dist.init_process_group('gloo')\n"
        "dist.barrier()\n"
        "print('rank', dist.get_rank(), 'is set up')\n"
    )
    first = start(service)
    nodes = [
        start([DDPRUN, "--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "r", program]) for _ in range(2)
    ]
    wait_for("workers", lambda: len(list(pathlib.Path(tmp_path).glob("gone.ready*"))) == 2, 120)
    first.kill()
    first.communicate(timeout=30)
    gone.touch()
    second = start(service)
    results = finish_all(nodes)
    second.send_signal(signal.SIGTERM)
    second.communicate(timeout=30)
    assert [code for code, _, _ in results] == [0, 0], results
    assert sorted(re.findall(r"rank \d is set up", "".join(out for _, out, _ in results))) == [
        "rank 0 is set up",
        "rank 1 is set up",
    ]
