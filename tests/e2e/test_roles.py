# SPDX-License-Identifier: Apache-2.0
"""Several programs in one run: `ddprun --role A:2 prog : --role B:1 prog`."""

import json
import os
import pathlib
import re
import signal
import subprocess

import pytest
from conftest import BIN, DDPRUN, TRAIN, clean_environment, finish_all, free_port, processes_of_this_session, run, start, wait_for
from hosts import three_hosts  # noqa: F401  (a fixture)

SHOW = (
    'echo "$ROLE_NAME $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE '
    '$ROLE_RANK/$ROLE_WORLD_SIZE $*"'
)

# Prints the sum of 2 to the power of its rank over all ranks of its group, in each round. The last rank of the role that it
# is told fails in the first round.
REDUCE = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
sum = torch.tensor([2 ** dist.get_rank()])
dist.all_reduce(sum)
role, round = os.environ["ROLE_NAME"], os.environ["TORCHELASTIC_RESTART_COUNT"]
if [role, round] == [*sys.argv[1:], "0"] and dist.get_rank() == dist.get_world_size() - 1:
    sys.exit(7)
dist.barrier()
print(role, round, dist.get_rank(), dist.get_world_size(), int(sum), flush=True)
"""


@pytest.fixture
def reduce(tmp_path):
    path = tmp_path / "reduce.py"
    path.write_text(REDUCE)
    return path


def lines_of(out):
    """Without prefixes, in order."""
    return sorted(re.sub(r"^\[.*?\] ", "", line) for line in out.splitlines())


def both_nodes(first, second, *flags, env=None):
    port = str(free_port())
    common = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", port, *flags]
    command = [DDPRUN, *common, "--node-rank"]
    return finish_all([start([*command, "0", *first], env=env), start([*command, "1", *second], env=env)])


# ---- Ranks


def test_each_program_sees_a_world_of_its_own():
    words = ["--role", "trainer:2", "sh", "-c", SHOW, "-", "a", ":", "b", ":", "--role=eval:1", "sh", "-c", SHOW, "-", "x${local_rank}"]
    done = run([DDPRUN, *words])
    assert done.returncode == 0, done
    assert sorted(done.stdout.splitlines()) == [
        "[0 trainer] trainer 0/2 0/2 0/1 0/2 a : b",
        "[1 trainer] trainer 1/2 1/2 0/1 1/2 a : b",
        "[2 eval] eval 0/1 0/1 0/1 0/1 x0",
    ]
    assert "':' is an argument of sh" in done.stderr


def test_or_all_share_one():
    done = run([DDPRUN, "--ranks-by", "run", "--role", "trainer:2", "sh", "-c", SHOW, ":", "--role", "eval", "sh", "-c", SHOW])
    assert (done.returncode, done.stderr) == (0, "")
    assert lines_of(done.stdout) == ["eval 2/3 2/3 0/1 0/1 ", "trainer 0/3 0/3 0/1 0/2 ", "trainer 1/3 1/3 0/1 1/2 "]


def test_a_colon_that_begins_no_program_is_an_argument():
    done = run([DDPRUN, "sh", "-c", 'echo "$*"', "-", ":", "x", ":"])
    assert (done.stdout, done.stderr) == ("[0] : x :\n", "")


def test_nodes_may_have_other_roles():
    """Roles count over the nodes that have them, and the first of these has the store of the role."""
    trainer, judge = ["--role", "trainer:2", "sh", "-c", SHOW], ["--role", "judge:1", "sh", "-c", SHOW]
    first, second = both_nodes(["--ranks-by", "role", *trainer], [*judge, ":", "--role", "trainer:1", "sh", "-c", SHOW])
    assert first[0] == second[0] == 0, (first, second)
    assert lines_of(first[1]) == ["trainer 0/3 0/2 0/2 0/3 ", "trainer 1/3 1/2 0/2 1/3 "]
    assert lines_of(second[1]) == ["judge 0/1 0/1 0/1 0/1 ", "trainer 2/3 0/1 1/2 2/3 "]
    assert re.search(r"^\[\S+:3 trainer\] ", second[1], re.M), second[1]


def test_hosts_get_every_program(tmp_path):
    rsh = tmp_path / "here"
    rsh.write_text('#!/bin/sh\nshift\nexec sh -c "exec $*"\n')  # a shell, as that of ssh
    rsh.chmod(0o755)
    words = ["--role", "a:1", "sh", "-c", SHOW, ":", "--role", "b:2", "--no-python", "sh", "-c", SHOW, "-", ":", "it's"]
    done = run([DDPRUN, "-H", "n1,n2:3", "--rsh", rsh, "--master-addr", "127.0.0.1", *words])
    assert done.returncode == 0, done
    assert lines_of(done.stdout) == [
        "a 0/2 0/1 0/2 0/2 ",
        "a 1/2 0/1 1/2 1/2 ",
        "b 0/4 0/2 0/2 0/4 : it's",
        "b 1/4 1/2 0/2 1/4 : it's",
        "b 2/4 0/2 1/2 2/4 : it's",
        "b 3/4 1/2 1/2 3/4 : it's",
    ]


# ---- Process groups


@pytest.mark.parametrize("store", ["agent", *(pytest.param(store, marks=pytest.mark.nightly) for store in ("master", "rank0"))])
def test_each_role_has_its_process_group(reduce, store):
    """At the same time, on two nodes, and with the same keys."""
    first, second = both_nodes(
        ["--role", "trainer:2", reduce, ":", "--role", "eval:1", reduce],
        ["--role", "judge:1", reduce, ":", "--role", "trainer:1", reduce],
        *["--worker-store", store],
        env=clean_environment(OMP_NUM_THREADS="1"),
    )
    assert first[0] == second[0] == 0, (first, second)
    assert lines_of(first[1]) == ["eval 0 0 1 1", "trainer 0 0 3 7", "trainer 0 1 3 7"], first
    assert lines_of(second[1]) == ["judge 0 0 1 1", "trainer 0 2 3 7"], second


def test_a_role_meets_on_hosts_of_its_own(three_hosts, reduce):  # noqa: F811
    """The store of the judges is on the second host, and the third reaches it there."""
    trainer, judge = ["--role", "trainer:1", reduce], ["--role", "judge:1", reduce]
    programs = [["--ranks-by", "role", *trainer], [*trainer, ":", *judge], ["--ranks-by", "role", *judge]]
    results = finish_all(
        [
            start([*host.prefix, DDPRUN, "--nnodes", "3", "--node-rank", rank, "--master-addr", three_hosts[0].address, *programs[rank]])
            for rank, host in enumerate(three_hosts)
        ]
    )
    assert [code for code, _, _ in results] == [0, 0, 0], results
    assert [lines_of(out) for _, out, _ in results] == [["trainer 0 0 2 3"], ["judge 0 0 2 3", "trainer 0 1 2 3"], ["judge 0 1 2 3"]]


def test_all_roles_may_have_one_process_group(reduce):
    done = run([DDPRUN, "--ranks-by", "run", "--role", "a:1", reduce, ":", "--role", "b:2", reduce])
    assert done.returncode == 0, done
    assert lines_of(done.stdout) == ["a 0 0 3 7", "b 0 1 3 7", "b 0 2 3 7"]


def test_a_restart_restarts_every_role(reduce):
    done = run([DDPRUN, "--max-restarts", "1", "--role", "a:2", reduce, "b", ":", "--role", "b:2", reduce, "b"])
    assert done.returncode == 0, done
    assert "rank 3 (rank 1 of b, local rank 3 on host" in done.stderr, done.stderr
    lines = lines_of(done.stdout)
    assert [line for line in lines if " 1 " in line[:5]] == ["a 1 0 2 3", "a 1 1 2 3", "b 1 0 2 3", "b 1 1 2 3"], lines


# ---- Failures, and what is shown


def test_the_verdict_names_the_role(tmp_path):
    fails = 'test "$RANK" = 1 && exit 9; exec sleep 600'
    done = run(
        [DDPRUN, "--verdict-file", tmp_path / "verdict", "--role", "a:1", "sleep", "600", ":", "--role", "b:2", "sh", "-c", fails]
    )
    assert done.returncode == 9, done
    assert done.stderr.startswith("ddprun: run failed: rank 2 (rank 1 of b, local rank 2 on host "), done.stderr
    cause = json.loads((tmp_path / "verdict").read_text())["cause"]
    assert (cause["rank"], cause["role"], cause["role_rank"]) == (2, "b", 1)


def test_ranks_are_compared_with_those_of_their_role(tmp_path):
    """The judges have done fewer collectives than the trainers and are behind nobody else."""
    program = tmp_path / "waits.py"
    program.write_text(
        "import os, time, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "trains, at = os.environ['ROLE_NAME'] == 'trainer', torch.ones(1)\n"
        "for _ in range(5 if trains else 2):\n"
        "    dist.all_reduce(at)\n"
        "if dist.get_rank() == 0:\n"
        "    time.sleep(600)\n"
        "dist.all_reduce(at)\n"
    )
    done = run([DDPRUN, "--hang-timeout", "4", "--role", "trainer:3", program, ":", "--role", "judge:2", program])
    assert done.returncode == 124, done
    found = re.search(r"^  collectives: ranks 1-2 wait in all_reduce 6 .* of group trainer; rank 0 has not begun it.*$", done.stderr, re.M)
    assert found and "rank 4 waits in all_reduce 3" in found[0] and "rank 3" not in found[0], done.stderr[-3000:]


def test_status_names_the_roles(tmp_path):
    endpoint = f"127.0.0.1:{free_port()}"
    words = ["--role", "a:2", "sh", "-c", 'until [ -e "$0" ]; do sleep 0.05; done', tmp_path / "end", ":", "--role", "b:1", "true"]
    process = start([DDPRUN, "--rdzv-endpoint", endpoint, "--rdzv-id", "job", *words])
    ask = [BIN / "ddpctl", "status", "--rdzv-endpoint", endpoint]
    wait_for("the round", lambda: '"phase":"running"' in run([*ask, "--json"]).stdout)
    node = json.loads(run([*ask, "--json"]).stdout)["runs"][0]["nodes"][0]
    assert node["ranks"] == [0, 1, 2]
    assert node["roles"] == [{"name": "a", "ranks": [0, 1]}, {"name": "b", "ranks": [2]}]
    assert "0-1 a, 2 b" in run(ask).stdout
    (tmp_path / "end").touch()
    assert process.wait(60) == 0, process.communicate()


def test_dry_run_shows_every_program():
    done = run([DDPRUN, "--dry-run", "--role", "a:2", "true", ":", "--role", "b:1", "sleep", "1"])
    assert done.returncode == 0, done
    assert re.search(r"^  command .*/true  \(role a, 2 workers\)$", done.stdout, re.M), done.stdout
    assert re.search(r"^  command .*/sleep 1  \(role b, 1 worker\)$", done.stdout, re.M), done.stdout
    assert "environment of the workers of role b" in done.stdout


def test_what_cannot_be_is_said_in_a_sentence(tmp_path):
    def error_of(*words):
        done = run([DDPRUN, *words])
        assert done.returncode != 0 and done.stderr.count("\n") == 1, done
        return done.stderr

    assert "two programs have the role a" in error_of("--role", "a", "true", ":", "--role", "a", "true")
    assert "--nnodes stands after the ':' of role b" in error_of("--role", "a", "true", ":", "--role", "b", "--nnodes", "2", "true")
    assert "role b has no program" in error_of("--role", "a", "true", ":", "--role", "b")
    assert "there is no program 'nothing-such'" in error_of("--role", "a", "true", ":", "--role", "b", "nothing-such")
    assert "--spares parks workers of one" in error_of("--spares", "1", "--role", "a", "true", ":", "--role", "b", "true")
    script = tmp_path / "x.py"
    script.touch()
    assert "--preload needs one program" in error_of("--preload", "json", "--role", "a", script, ":", "--role", "b", script)


def test_nodes_that_count_differently_are_told():
    one, two = ["--role", "a:1", "true"], ["--role", "a:1", "true", ":", "--role", "b:1", "true"]
    results = both_nodes(one, two, "--join-timeout", "20")
    assert any("start all nodes with the same --ranks-by" in err for _, _, err in results), results


# ---- The training program, unchanged


@pytest.mark.skipif(not os.path.exists(TRAIN), reason="train is not built")
@pytest.mark.nightly
def test_train_is_a_role_like_any_other(tmp_path):
    """Two trainings at once, whose ranks are kept when one of them loses a rank: each finds its peers again, and its keys."""

    def training(name):
        small = "--model simple-cnn --dataset synthetic --samples 64 --batch-size 4 --no-eval --max-steps 2000 --epochs 1000"
        return ["--role", f"{name}:2", TRAIN, *small.split(), "--output-dir", tmp_path / name]

    flags = ["--max-restarts", "1", "--log-dir", tmp_path / "logs", "--rdzv-id", "job"]
    process = start([DDPRUN, *flags, *training("a"), ":", *training("b")], env=clean_environment(OMP_NUM_THREADS="1"))

    def ranks_of(role):
        found = []
        for pid, words in processes_of_this_session():
            try:
                environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
            except OSError:
                continue
            if words.startswith(TRAIN) and f"\0ROLE_NAME={role}\0".encode() in environment:
                found.append(int(pid))
        return found

    logs = [tmp_path / f"logs/job/round_1/rank_{rank}/stdout.log" for rank in (0, 2)]
    wait_for("both trainings", lambda: all(log.exists() and "epoch 3/" in log.read_text() for log in logs))
    os.kill(ranks_of("b")[1], signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, (out, err)
    assert re.search(r"rank [23] \(rank [01] of b, ", err), err
    for name in ("a", "b"):
        assert re.search(rf"^\[\d {name}\] goes on after step", out, re.M), out
        assert (tmp_path / name / "cifar_net.pth").exists(), (out, err)


@pytest.mark.skipif(not os.path.exists(TRAIN), reason="train is not built")
def test_a_node_that_joins_parks_workers_of_every_program(tmp_path):
    def words(name):
        small = "--model simple-cnn --dataset synthetic --samples 64 --batch-size 4 --no-eval --max-steps 1000000 --epochs 1000000"
        return ["--role", f"{name}:1", TRAIN, *small.split(), "--output-dir", tmp_path / name]

    command = [DDPRUN, "--nnodes", "1:2", "--last-call", "0.1", "--master-addr", "127.0.0.1", "--master-port", free_port()]
    out = tmp_path / "out"

    def node(rank):
        with open(out, "a") as file:
            return subprocess.Popen(
                [str(word) for word in [*command, "--node-rank", rank, *words("a"), ":", *words("b")]],
                env=clean_environment(OMP_NUM_THREADS="1"),
                stdout=file,
                stderr=file,
            )

    nodes = [node(0)]
    wait_for("both trainings", lambda: all(f" {name}] epoch 3/" in out.read_text() for name in ("a", "b")))
    nodes.append(node(1))
    wait_for("a world of two", lambda: all(re.search(rf" {name}\] goes on .* with 2 ranks", out.read_text()) for name in ("a", "b")))
    nodes[0].terminate()
    assert [one.wait(60) for one in nodes] == [143, 143], out.read_text()
