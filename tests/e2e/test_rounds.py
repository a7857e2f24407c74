# SPDX-License-Identifier: Apache-2.0
"""ddprun.rounds() in a Python program under the real agent: ranks die, and the others go on in their processes."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading

import pytest
from conftest import DDPRUN, PYTHON, clean_environment, free_port, processes_of_this_session, run, start, wait_for
from kept_runs import PROGRAM, STEPS, assert_objects_stay, finished, logs, reach, training
from kept_training import state_of

sys.path.insert(0, PYTHON)
from ddprun.rounds import Round, _Connections  # noqa: E402


@pytest.fixture
def processes():
    """What a test has started, ended with it."""
    started = []
    yield started
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The end of a run of so many ranks that nothing disturbs; each is made once."""
    ends = {}

    def end_of(ranks):
        if ranks not in ends:
            folder = tmp_path_factory.mktemp("undisturbed") / "run"
            finished(training(folder, "--nproc-per-node", ranks, pause=0))
            ends[ranks] = state_of(folder)
        return ends[ranks]

    return end_of


@pytest.mark.parametrize("ranks, spares", [(2, 1), *(pytest.param(3, spares, marks=pytest.mark.nightly) for spares in (0, 1))])
def test_killed_ranks_leave_no_trace(tmp_path, processes, undisturbed, ranks, spares):
    process = training(tmp_path / "run", "--nproc-per-node", ranks, "--max-restarts", 9, "--spares", spares)
    processes.append(process)
    victims = (1, 0, 2)[:ranks]
    for victim in victims:
        pids = reach(tmp_path / "run", process, ranks, 10)
        os.kill(pids[victim], signal.SIGKILL)
        after = reach(tmp_path / "run", process, ranks, 5)
        assert after[victim] != pids[victim]
        assert {**after, victim: 0} == {**pids, victim: 0}
    assert len(re.findall("restart ", finished(process))) == len(victims)
    assert undisturbed(ranks) == state_of(tmp_path / "run")
    assert_objects_stay(tmp_path / "run")


@pytest.mark.parametrize("name", ["WITH_OWN_DDP", "WITH_BUCKETS_OF_THE_ORDER"])
def test_killed_ranks_leave_no_trace_in_other_loops(tmp_path, processes, undisturbed, name):
    """One that makes its own DDP in each round, and one whose DDP builds its buckets anew in the second step."""
    process = training(tmp_path / "run", "--nproc-per-node", 2, "--max-restarts", 9, **{name: "1"})
    processes.append(process)
    pids = reach(tmp_path / "run", process, 2, 10)
    os.kill(pids[0], signal.SIGKILL)
    finished(process)
    assert undisturbed(2) == state_of(tmp_path / "run")


AVERAGES = """
import json, os, pathlib, sys, time
import torch, torch.distributed as dist
sys.path.insert(0, os.environ["PACKAGE"])
import ddprun
torch.set_num_threads(1)
folder, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
net = torch.nn.Sequential(torch.nn.Linear(600, 600), torch.nn.Linear(600, 1))  # of two buckets
for round in ddprun.rounds(net, backend="gloo"):
    with round, open(folder / f"samples-{round.rank}.jsonl", "a") as log:
        ddp = round.ddp(net)
        done = torch.zeros(1)
        while not done.item():
            log.write(json.dumps({"step": round.step + 1, "pid": os.getpid(), "ddp": id(ddp), "group": id(dist.group.WORLD)}) + "\\n")
            log.flush()
            net.zero_grad()
            (ddp(torch.ones(1, 600)).sum() * (round.rank + 1)).backward()
            average = (round.world_size + 1) / 2
            assert net[1].bias.grad.item() == average, f"{net[1].bias.grad} instead of {average} of {round.world_size} ranks"
            time.sleep(0.01)
            dist.all_reduce(done.fill_((folder / "done").exists()))
            round.end_step()
"""


@pytest.mark.nightly
def test_a_step_that_is_made_again_counts_once(tmp_path, processes):
    finished(training(tmp_path / "plain", "--nproc-per-node", 2, pause=0, WITH_BATCH_NORM="1"))
    process = training(tmp_path / "run", "--nproc-per-node", 2, "--max-restarts", 9, WITH_BATCH_NORM="1")
    processes.append(process)
    reach(tmp_path / "run", process, 2, 10)
    (tmp_path / "run" / "die-1").touch()  # after forward, which has changed batch norm's statistics
    assert "restart 1 of 9" in finished(process)
    assert state_of(tmp_path / "plain") == state_of(tmp_path / "run")


def nodes(folder, count, *flags):
    port = free_port()
    at = ["--master-addr", "127.0.0.1", "--master-port", port, "--insecure", "--max-restarts", 9]
    return [training(folder, *at, "--node-rank", node, *flags) for node in range(count)]


@pytest.mark.nightly
def test_gradients_are_averages_over_the_ranks_of_the_round(tmp_path, processes):
    """One DDP in each process, while a node ends and comes again."""
    program, folder = tmp_path / "averages.py", tmp_path / "run"
    program.write_text(AVERAGES)
    at = ["--nnodes", "1:2", "--last-call", 1, "--lease", 3, "--insecure", "--master-addr", "127.0.0.1", "--master-port", free_port()]

    def node(number):
        processes.append(training(folder, *at, "--node-rank", number, "--max-restarts", 9, program=program, PACKAGE=PYTHON))
        return processes[-1]

    first, second = node(0), node(1)
    reach(folder, first, 2, 10)
    second.terminate()
    reach(folder, first, 1, 10)
    node(1)
    reach(folder, first, 2, 10)
    (folder / "done").touch()
    finished(first)
    assert_objects_stay(folder)


@pytest.mark.parametrize("each", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_on_two_nodes(tmp_path, processes, undisturbed, each):
    ranks = 2 * each
    processes += nodes(tmp_path / "run", 2, "--nnodes", 2, "--nproc-per-node", each)
    for victim in (ranks - 1, 0):
        pids = reach(tmp_path / "run", processes[0], ranks, 10)
        os.kill(pids[victim], signal.SIGKILL)
    reach(tmp_path / "run", processes[0], ranks, 5)
    for process in processes:
        finished(process)
    assert undisturbed(ranks) == state_of(tmp_path / "run")


def test_goes_on_with_fewer_ranks(tmp_path, processes):
    flags = ["--nnodes", "1:2", "--nproc-per-node", 1, "--last-call", 1, "--lease", 3]
    processes += nodes(tmp_path / "run", 2, *flags)
    pids = reach(tmp_path / "run", processes[0], 2, 10)
    done = logs(tmp_path / "run")[0][-1][0]
    processes[1].terminate()
    reach(tmp_path / "run", processes[0], 1, 10)
    said = finished(processes[0])
    steps = [step for step, pid in logs(tmp_path / "run")[0] if pid == pids[0]]
    assert steps[-1] == STEPS and all(step >= done for step in steps[steps.index(done) :]), said


def test_a_cut_connection_is_no_reason_to_start_anew(tmp_path, processes, undisturbed):
    process = training(tmp_path / "run", "--nproc-per-node", 2, "--max-restarts", 3)
    processes.append(process)
    pids = reach(tmp_path / "run", process, 2, 10)
    (tmp_path / "run" / "cut-1").touch()
    wait_for("the cut", lambda: not (tmp_path / "run" / "cut-1").exists())
    assert reach(tmp_path / "run", process, 2, 10) == pids
    err = finished(process)
    assert "restart 1 of 3" in err
    assert undisturbed(2) == state_of(tmp_path / "run")


def test_an_error_of_its_own_ends_the_rank(tmp_path, processes):
    process = training(tmp_path / "run", "--nproc-per-node", 2, "--max-restarts", 0)
    processes.append(process)
    reach(tmp_path / "run", process, 2, 10)
    (tmp_path / "run" / "fail-1").touch()
    _, err = process.communicate(timeout=100)
    assert process.returncode == 1
    assert "run failed: rank 1" in err and "an error of its own" in err
    assert not processes_of_this_session()


def notify_socket(folder):
    """An agent's socket, and its path."""
    agent = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    path = str(folder / "notify")
    agent.bind(path)
    agent.settimeout(60)
    return agent, path


@pytest.mark.parametrize("when", ["before", "in"])
def test_a_round_that_ends_while_its_group_is_made_is_left(tmp_path, processes, when):
    """The other rank never comes."""
    agent, path = notify_socket(tmp_path)
    port = free_port()
    environ = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    process = start(
        [sys.executable, PROGRAM, tmp_path, 20], env=clean_environment(DDPRUN_NOTIFY_SOCKET=path, DDPRUN_ROUND="7", **environ)
    )
    processes.append(process)
    assert agent.recv(1000) == b"KEEP=1\n"
    if when == "in":
        wait_for("its store", lambda: is_listening(port))
    agent.sendto(b"BROKEN=7\n", path + ".rounds")
    assert agent.recv(1000) == b"LEFT=7\n"
    variables = {**environ, "WORLD_SIZE": "1", "MASTER_PORT": str(free_port())}
    text = "ROUND=8\n" + "".join(f"{name}={value}\n" for name, value in variables.items())
    agent.sendto(text.encode(), path + ".rounds")
    finished(process)
    assert [step for step, _ in logs(tmp_path)[0]] == list(range(1, 21))


def test_a_collective_that_gloo_does_not_end_ends_with_its_round(tmp_path, processes):
    """As one does whose message was being written when the connection went: here the connections are not shut at all. The peer
    stands still in the middle of the training."""
    agent, path = notify_socket(tmp_path)
    program = tmp_path / "deaf.py"
    program.write_text(
        f"import runpy, sys\nsys.path.insert(0, {PYTHON!r})\nfrom ddprun.rounds import _Connections\n"
        f"_Connections.shut = lambda self: None\nrunpy.run_path({str(PROGRAM)!r}, run_name='__main__')\n"
    )
    (tmp_path / "peer").mkdir()
    _, path_of_peer = notify_socket(tmp_path / "peer")
    environ = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "DDPRUN_ROUND": "7"}
    arguments = [sys.executable, program, tmp_path, 60, 0.01]
    processes += [
        start(arguments, env=clean_environment(**environ, RANK=str(rank), DDPRUN_NOTIFY_SOCKET=notify))
        for rank, notify in enumerate((path, path_of_peer))
    ]
    reach(tmp_path, processes[0], 2, 10)
    processes[1].send_signal(signal.SIGSTOP)
    seen = []

    def stands_still():
        seen.append(logs(tmp_path)[0][-1][0])
        return seen[-50:] == [seen[-1]] * 50

    wait_for("rank 0 waiting for its peer", stands_still)
    assert agent.recv(1000) == b"KEEP=1\n"
    agent.sendto(b"BROKEN=7\n", path + ".rounds")
    assert agent.recv(1000) == b"LEFT=7\n"
    variables = {**environ, "RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": str(free_port())}
    text = "ROUND=8\n" + "".join(f"{name}={value}\n" for name, value in variables.items())
    agent.sendto(text.encode(), path + ".rounds")
    finished(processes[0])
    assert logs(tmp_path)[0][-1][0] == 60


COLLECTIVES = """
import datetime, faulthandler, sys
sys.path.insert(0, sys.argv[1])
import torch, torch.distributed as dist
from ddprun import gloo_group
faulthandler.dump_traceback_later(60, exit=True)
gloo_group.register()
dist.init_process_group(gloo_group.BACKEND)
rank = dist.get_rank()
pair, one = torch.arange(2.0), torch.zeros(1)
for _ in range(50):  # in quick succession, as Gloo's threads free what they have done
    total = torch.ones(3)
    dist.all_reduce(total)
    assert total.tolist() == [2, 2, 2]
    names = [None, None]
    dist.all_gather_object(names, rank)
    assert names == [0, 1]
    both = torch.zeros(2)
    dist.all_gather_into_tensor(both, torch.tensor([float(rank)]))
    assert both.tolist() == [0, 1]
    dist.reduce_scatter_tensor(one, pair.clone())
    assert one.item() == 2 * rank
    dist.scatter(one, [torch.ones(1), torch.zeros(1)] if rank == 0 else None)
    assert one.item() == 1 - rank
    dist.all_to_all_single(both, pair)
    assert both.tolist() == [rank, rank]
    dist.send(total, 1) if rank == 0 else dist.recv(total, 0)
    dist.broadcast(total, 0, async_op=True).wait()
    dist.barrier()
subgroup = dist.new_group([0, 1])
dist.all_reduce(total, group=subgroup)
assert total.tolist() == [4, 4, 4]
assert dist.get_backend() == dist.get_backend(subgroup) == "gloo"
store = dist.distributed_c10d._get_default_store()
work = dist.all_reduce(torch.tensor(16), op=dist.ReduceOp.AVG, async_op=True)
try:
    work.wait()
    sys.exit("Gloo has no average of integers")
except RuntimeError as error:
    assert "cast" in str(error) and "cast" in str(work.exception()) and work.is_completed() and not work.is_success()
if rank == 0:
    try:
        dist.broadcast(total, 1, async_op=True).wait(datetime.timedelta(seconds=0.05))
        sys.exit("rank 1 has not begun it")
    except RuntimeError as error:
        assert "within 0.05 s" in str(error)
    store.set("late", "1")
else:
    store.wait(["late"])
    dist.broadcast(total, 1)
dist.barrier()
dist.destroy_process_group()
"""


def test_each_collective_passes_through(tmp_path):
    program = tmp_path / "collectives.py"
    program.write_text(COLLECTIVES)
    done = run([DDPRUN, "--nproc-per-node", 2, program, PYTHON], timeout=100)
    assert done.returncode == 0, done.stderr + done.stdout


FAILURES = """
import os, sys
sys.path.insert(0, sys.argv[1])
import torch, torch.distributed as dist
from ddprun import gloo_group
gloo_group.register()

def begin(round):
    os.environ.update(MASTER_PORT=sys.argv[1 + round], DDPRUN_ROUND=str(round))
    gloo_group.forget_groups()
    dist.init_process_group(gloo_group.BACKEND)
    return dist.group.WORLD

def end():
    dist.destroy_process_group()

def fail(*_):
    raise RuntimeError("gloo: nobody answers")

first = begin(1)
end()
second = begin(2)
assert (second is first) == gloo_group.CAN_RECONFIGURE
end()
second._enter = fail
try:
    begin(3)
    assert not gloo_group.CAN_RECONFIGURE
    end()
except RuntimeError as error:
    assert "nobody answers" in str(error) and not dist.is_initialized()
fourth = begin(4)
assert fourth is not second
total = torch.ones(3)
dist.all_reduce(total)
assert total.tolist() == [1, 1, 1]
end()
"""


def test_a_group_that_cannot_be_reconfigured_is_made_anew(tmp_path):
    program = tmp_path / "failures.py"
    program.write_text(FAILURES)
    environ = clean_environment(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1")
    done = run([sys.executable, program, PYTHON, *(free_port() for _ in range(4))], env=environ)
    assert done.returncode == 0, done.stderr


def is_listening(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_connections_end_that_come_after_the_end_of_their_round():
    connections = _Connections()
    with socket.create_server(("127.0.0.1", 0)) as server, connections.being_made():
        with socket.create_connection(server.getsockname(), timeout=10) as first:
            thread = threading.Thread(target=connections.shut)
            thread.start()
            assert first.recv(1) == b""
        with socket.create_connection(server.getsockname(), timeout=10) as second:
            assert second.recv(1) == b""
    thread.join(10)
    assert not thread.is_alive()


def test_a_round_that_is_over_before_its_group_is_made_is_left():
    class Client:
        kept, round = True, 7
        reasons = []

        def broken(self, timeout=0.0):
            return True

        def left(self, error=""):
            self.reasons.append(error)

    current = Round(Client(), _Connections(), (), 0)
    assert not current._join("gloo", {"init_method": "tcp://127.0.0.1:1", "rank": 1, "world_size": 2})
    assert Client.reasons == [""]


@pytest.mark.parametrize("parked", ["", "1"])
def test_with_nccl_a_process_ends_with_its_round(tmp_path, processes, parked):
    agent, path = notify_socket(tmp_path)
    text = f"import sys; sys.path.insert(0, {PYTHON!r}); import ddprun\nfor round in ddprun.rounds(backend='cpu:gloo,cuda:nccl'): pass\n"
    environ = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    environ |= {"DDPRUN_NOTIFY_SOCKET": path, "DDPRUN_ROUND": "7", "DDPRUN_PARKED": parked}
    process = start([sys.executable, "-c", text], env=clean_environment(**environ))
    processes.append(process)
    if parked:  # it waits for its place, and has one then
        assert agent.recv(1000) == b"KEEP=1\n"
        agent.sendto("".join(f"{name}={value}\n" for name, value in {"ROUND": 8, **environ}.items()).encode(), path + ".rounds")
    else:
        said = process.stderr.readline()
        assert "with NCCL the death of a rank ends all ranks, and --max-restarts starts them again" in said, said
    wait_for("its store", lambda: is_listening(int(environ["MASTER_PORT"])))
    if parked:
        agent.sendto(b"BROKEN=8\n", path + ".rounds")  # shuts its connections
    else:
        process.kill()
    process.communicate(timeout=100)
    assert process.returncode == (1 if parked else -signal.SIGKILL)
    agent.settimeout(0)
    with pytest.raises(BlockingIOError):
        agent.recv(1000)  # neither asked to be kept nor has left


def test_without_ddprun_there_is_one_round(tmp_path):
    environ = clean_environment(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    done = run([sys.executable, PROGRAM, tmp_path, 20], env=environ)
    assert done.returncode == 0, done.stderr
    assert [step for step, _ in logs(tmp_path)[0]] == list(range(1, 21))


def test_a_loop_without_its_with_is_an_error(tmp_path):
    text = f"""import atexit, sys
sys.path.insert(0, {PYTHON!r})
import ddprun, torch.distributed
atexit.register(lambda: print("group:", torch.distributed.is_initialized()))
for round in ddprun.rounds(backend="gloo"): pass
"""
    environ = clean_environment(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    done = subprocess.run([sys.executable, "-c", text], env=environ, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (1, "group: False\n")
    assert "must be within `with round:`" in done.stderr
