# SPDX-License-Identifier: Apache-2.0
"""The command lines that test_torchrun_parity.py runs under both launchers, the differences that launcher/TORCHRUN.md
states, and which case or test covers each of torchrun's flags and variables."""

import dataclasses
import os
import re
import sys
from collections.abc import Callable

from side_by_side import C10D, HERE, PROBE, TORCH_LAUNCH, Case

TWO_NODES = (("--node-rank=0",), ("--node-rank=1",))
TWO_BY_TWO = ("--nnodes=2", "--nproc-per-node=2", "--rdzv-id=job")
ONE = ("--rdzv-id=job",)
OTHER_PYTHON = next((p for p in ("/usr/bin/python3", "/usr/local/bin/python3") if os.path.exists(p)), sys.executable)

# Everything that a process hands on to its children, other than it usually is.
SHELL = (
    "umask 027; ulimit -c 0; ulimit -S -s 4096; ulimit -S -n 500; ulimit -S -u 3000; trap '' HUP USR1; exec 7</dev/null;"
    'exec nice -n 3 taskset -c "$FIRST_CPU" env --block-signal=USR2 "$@"'
)

# A program run by runpy in a process that Python's multiprocessing made: of it the program's own view is compared.
RUNPY = ("argv", "name", "file", "package", "environment.")

CASES = [
    Case(
        "one worker",
        ONE,
        expected={"environment.WORLD_SIZE": "1", "environment.MASTER_PORT": "PORT", "unbuffered": True},
    ),
    Case("two nodes", TWO_BY_TWO, nodes=TWO_NODES, workers=4, expected={"environment.GROUP_WORLD_SIZE": "2"}),
    Case(
        "two nodes, c10d",
        (*TWO_BY_TWO, "--max-restarts=3"),
        C10D,
        (
            (
                "--rdzv-conf=is_host=1,join_timeout=99,last_call_timeout=9,close_timeout=9,heartbeat_timeout=9,use_libuv=1",
            ),
            (
                "--rdzv-conf=is_host=0,join_timeout=99,keep_alive_interval=4,keep_alive_max_attempt=2,read_timeout=50,store_type=tcp",
            ),
        ),
        workers=4,
        expected={"environment.TORCHELASTIC_MAX_RESTARTS": "3"},
    ),
    Case(
        "two nodes of three",
        ("--nnodes=2:3", "--rdzv-id=job", "--rdzv-conf=last_call_timeout=1"),
        C10D,
        ((), ()),
        workers=2,
    ),
    Case(
        "a static endpoint",
        ("--rdzv-conf=timeout=99",),
        ("--rdzv-endpoint=127.0.0.1:PORT",),
        expected={"environment.GROUP_WORLD_SIZE": "1"},
    ),
    Case(
        "two nodes of unlike size",
        ("--nnodes=2", *ONE),
        nodes=(("--node-rank=0", "--nproc-per-node=1"), ("--node-rank=1", "--nproc-per-node=2")),
        workers=3,
    ),
    Case(
        "two roles",
        TWO_BY_TWO,
        nodes=(("--node-rank=0", "--role=actor"), ("--node-rank=1", "--role=learner")),
        workers=4,
        expected={"environment.ROLE_WORLD_SIZE": "2"},
    ),
    Case(
        "standalone",
        ("--standalone", "--rdzv-backend=static", "--rdzv-id=other"),
        (),
        expected={"environment.GROUP_RANK": "0"},
    ),
    Case("a master that has a name", ONE, ("--master-addr=localhost", "--master-port=PORT")),
    Case(
        "an address of its own",
        (*ONE, "--local-addr=127.0.0.2"),
        C10D[:2],
        expected={"environment.MASTER_ADDR": "127.0.0.2"},
    ),
    Case("as many workers as there are", (*ONE, "--nproc-per-node=auto")),
    Case("as many workers as CPUs", (*ONE, "--nproc-per-node=cpu")),
    Case(
        "underscores and shortened names",
        ("--nproc_per_n=2", "--max_restart=4", "--rdzv_id", "job", "--rol", "trainer", "--monitor_interval", "0.5"),
        workers=2,
        expected={"environment.ROLE_NAME": "trainer", "environment.TORCHELASTIC_MAX_RESTARTS": "4"},
    ),
    Case("handlers", (*ONE, "--event-log-handler=console", "--start-method=forkserver", "--monitor-interval=1")),
    Case(
        "all by variables",
        meet=(),
        workers=2,
        variables={
            "PET_NNODES": "1:1",
            "PET_NPROC_PER_NODE": "2",
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_ENDPOINT": "127.0.0.1:0",
            "PET_RDZV_ID": "job",
            "PET_RDZV_CONF": "join_timeout=99",
            "PET_STANDALONE": "0",
            "PET_MAX_RESTARTS": "7",
            "PET_MONITOR_INTERVAL": "0.2",
            "PET_START_METHOD": "fork",
            "PET_EVENT_LOG_HANDLER": "null",
            "PET_ROLE": "trainer",
            "PET_MODULE": "0",
            "PET_NO_PYTHON": "0",
            "PET_RUN_PATH": "0",
            "PET_LOG_DIR": "FOLDER/logs",
            "PET_REDIRECTS": "0:1",
            "PET_TEE": "1:2",
            "PET_LOCAL_RANKS_FILTER": "0,1",
            "PET_DUPLICATE_STDOUT_FILTERS": "apple",
            "PET_DUPLICATE_STDERR_FILTERS": "orange",
            "PET_NODE_RANK": "0",
            "PET_MASTER_ADDR": "127.0.0.1",
            "PET_MASTER_PORT": "1",
            "PET_LOCAL_ADDR": "127.0.0.1",
            "PET_SIGNALS_TO_HANDLE": "SIGTERM,SIGUSR1",
            "PET_VIRTUAL_LOCAL_RANK": "1",
        },
        expected={"environment.LOCAL_RANK": "0", "environment.TORCHELASTIC_MAX_RESTARTS": "7"},
    ),
    Case(
        "a module",
        (*ONE, "-m"),
        program=("parity_probe", "FOLDER"),
        variables={"PYTHONPATH": str(HERE)},
        expected={"package": ""},
    ),
    Case(
        "no Python",
        (*ONE, "--no-python"),
        program=(sys.executable, str(PROBE), "FOLDER"),
        expected={"unbuffered": False},
    ),
    Case("runpy", (*ONE, "--run-path"), only=RUNPY),
    Case("runpy, forked", (*ONE, "--run-path", "--start-method=fork"), only=RUNPY),
    Case("another Python", ONE, variables={"PYTHON_EXEC": OTHER_PYTHON}, expected={"executable": OTHER_PYTHON}),
    Case("torch.distributed.launch", (*ONE, "--use-env"), torchrun=tuple(TORCH_LAUNCH)),
    Case(
        "arguments",
        (*ONE, "--nproc-per-node=2"),
        arguments=("", "-x=${local_rank}", "a b", "--nnodes=3", "ü\n", "{}", "--"),
        workers=2,
    ),
    Case(
        "virtual local ranks",
        (*ONE, "--nproc-per-node=2", "--virtual-local-rank"),
        variables={"CUDA_VISIBLE_DEVICES": "4,5"},
        workers=2,
    ),
    Case("logs", (*ONE, "--log-dir=FOLDER/logs", "-r=1", "-t=2", "--local-ranks-filter=0")),
    Case("no logs", (*ONE, "--log-dir=/dev/null")),
    Case("other signals", (*ONE, "--signals-to-handle=SIGTERM,SIGUSR2")),
    Case(
        "variables of a person",
        (*ONE, "--nproc-per-node=2"),
        workers=2,
        variables={
            "OMP_NUM_THREADS": "3",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3",
            "CUDA_VISIBLE_DEVICES": "4,5",
            "HIP_VISIBLE_DEVICES": "1",
            "LOGLEVEL": "INFO",
            "USE_LIBUV": "0",
            "TORCH_NCCL_BLOCKING_WAIT": "1",
            "TORCH_FR_BUFFER_SIZE": "9",
            "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
            "GLOO_SOCKET_IFNAME": "lo",
            "NCCL_SOCKET_IFNAME": "lo",
            "TORCHELASTIC_TIMER_FILE": "FOLDER/timer",
            "TORCHELASTIC_ETCD_BINARY_PATH": "/nowhere/etcd",
            "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT": "9",
            "TORCH_ELASTIC_EXIT_BARRIER_TIMEOUT": "5",
            "TORCH_WORKER_SERVER_SOCKET": "FOLDER/socket",
            "EMPTY": "",
            "ODD": "a=b\nc",
        },
        expected={"environment.OMP_NUM_THREADS": "3", "environment.ODD": "a=b\nc"},
    ),
    Case(
        "variables of an outer run",
        ONE,
        variables={
            name: "7"
            for name in (
                "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_NAME ROLE_WORLD_SIZE "
                "MASTER_ADDR MASTER_PORT TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID "
                "TORCHELASTIC_USE_AGENT_STORE TORCHELASTIC_ERROR_FILE"
            ).split()
        },
        expected={"environment.RANK": "0", "environment.WORLD_SIZE": "1"},
    ),
    Case("signals by variable", ONE, variables={"TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM"}),
    Case("a prefix by variable", ONE, variables={"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[${rank}]:"}),
    Case(
        "a timer and a health check",
        ONE,
        variables={"TORCHELASTIC_ENABLE_FILE_TIMER": "1", "TORCHELASTIC_HEALTH_CHECK_PORT": "0"},
    ),
    Case("workers alike", TWO_BY_TWO, nodes=TWO_NODES, workers=4, variables={"TORCH_ELASTIC_WORKER_IDENTICAL": "1"}),
    Case(
        "a store of the workers' own",
        ONE,
        C10D,
        variables={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        expected={"environment.TORCHELASTIC_USE_AGENT_STORE": "False"},
    ),
    Case(
        "what a process inherits",
        ONE,
        before=("bash", "-c", SHELL, "-"),
        variables={"FIRST_CPU": str(min(os.sched_getaffinity(0)))},
        expected={"umask": 0o027, "stdin": "said to it\n", "affinity": [min(os.sched_getaffinity(0))]},
    ),
    Case("a restart", (*ONE, "--nproc-per-node=2", "--max-restarts=2"), arguments=("again:1",), workers=2, starts=2),
    Case(
        "a restart of two nodes",
        ("--nnodes=2", *ONE, "--max-restarts=2"),
        C10D,
        ((), ()),
        ("again:1",),
        workers=2,
        starts=2,
    ),
]


@dataclasses.dataclass(frozen=True)
class Stated:
    """A difference in the fields of that name, in the words of launcher/TORCHRUN.md, and what each side then has.
    `everywhere`: false where it takes chance or another machine to see it."""

    field: str
    words: str
    holds: Callable = lambda ours, theirs: True
    everywhere: bool = True

    def covers(self, difference):
        return re.fullmatch(self.field, difference.field) is not None and self.holds(difference.ours, difference.theirs)


def is_port(text):
    return text == "PORT" or text.isdigit()


STATED = [
    Stated(r"descriptors\.[12]", "always pipes to ddprun", lambda ours, theirs: (ours, theirs) == ("FIFO", "REG")),
    Stated(
        "stdin",
        "shared by all workers; the first reader gets the data",
        lambda ours, theirs: {ours, theirs} == {"", "said to it\n"},
        False,
    ),
    Stated("parent_death_signal", "SIGKILL if the agent dies", lambda ours, theirs: (ours, theirs) == (9, 0)),
    Stated(
        "cgroup", "a cgroup of the round, if ddprun may create one", lambda ours, theirs: "/round_" in ours, False
    ),
    Stated(
        r"status\.SigIgn",
        "ignored signals stay ignored",
        lambda ours, theirs: int(ours, 16) ^ int(theirs, 16) == 1,
    ),
    Stated(
        "command|executable",
        "`python3` in PATH",
        lambda ours, theirs: str(ours).replace("python3", "python") == str(theirs),
    ),
    Stated(
        r"environment\.DDPRUN_(AGENT_SOCKET|NOTIFY_SOCKET|ROUND|ONE_ROUND)",
        "`DDPRUN_AGENT_SOCKET` `DDPRUN_NOTIFY_SOCKET` `DDPRUN_ROUND` `DDPRUN_ONE_ROUND`",
        lambda ours, theirs: theirs is None,
    ),
    Stated(
        r"environment\.TORCH_(FR_DUMP_TEMP_FILE|NCCL_DEBUG_INFO_TEMP_FILE|NCCL_DEBUG_INFO_PIPE_FILE|NCCL_DUMP_ON_TIMEOUT)",
        "where PyTorch's flight recorder dumps",
        lambda ours, theirs: theirs is None,
    ),
    Stated(r"environment\.DDPRUN_TOKEN", "removed: workers never have the run's secret", lambda ours, theirs: ours is None),
    Stated(
        r"environment\.(GLOO|NCCL)_SOCKET_IFNAME",
        "`GLOO_SOCKET_IFNAME` `NCCL_SOCKET_IFNAME`",
        lambda ours, theirs: ours in ("lo", "=lo") and theirs is None,
    ),
    Stated(
        r"environment\.TORCHELASTIC_ERROR_FILE",
        "a file of the same format in another place",
        lambda ours, theirs: ours.endswith(".json") and (theirs == "" or theirs.endswith("/error.json")),
    ),
    Stated(
        r"environment\.TORCHELASTIC_SIGNALS_TO_HANDLE",
        "`TORCHELASTIC_TIMER_FILE`, `TORCHELASTIC_SIGNALS_TO_HANDLE` | not set by ddprun; a value of the user is passed on",
        lambda ours, theirs: theirs.startswith("SIGTERM"),
    ),
    Stated(
        r"environment\.TORCHELASTIC_TIMER_FILE",
        "`TORCHELASTIC_TIMER_FILE`, `TORCHELASTIC_SIGNALS_TO_HANDLE` | not set",
        lambda o, t: o is None,
    ),
    Stated(
        r"environment\.TORCHELASTIC_RESTART_COUNT",
        "each node counts its own restarts",
        lambda ours, theirs: (ours, theirs) == ("1", "0"),
    ),
    Stated(
        r"environment\.TORCHELASTIC_RUN_ID",
        "names the run after the time of its start",
        lambda ours, theirs: ours != "none" and (theirs == "none" or len(theirs) == 36),
    ),
    Stated(
        r"environment\.MASTER_PORT",
        "a free port on the node of rank 0",
        lambda ours, theirs: is_port(ours) and is_port(theirs),
    ),
    Stated(
        r"environment\.MASTER_ADDR",
        "always an address, where torchrun may give a host name",
        lambda o, t: re.fullmatch(r"[\d.:a-f]+", o),
    ),
    Stated(
        r"environment\.OMP_NUM_THREADS",
        "cores / workers; torchrun sets 1",
        lambda ours, theirs: theirs == "1",
        False,
    ),
]
