#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own tests of TCPStore against the agent's listener.

    tests/e2e/pytorch_store_tests.py test_store.py [--only NAME] [--verbose]

test_store.py is PyTorch's test/distributed/test_store.py; it is not kept here. Each of its tests that makes a TCPStore
has a run of its own (`ddprun --standalone`), so that it finds no key of another. What would open a server becomes a
client of that run's agent, as torch itself does it under TORCHELASTIC_USE_AGENT_STORE; everything else is torch's.
Tests that are not applicable are named with the reason. Needs the packages that torch's tests need (expecttest).
Exits with 1 if a test failed.
"""

import argparse
import functools
import importlib.util
import io
import os
import pathlib
import sys
import tempfile
import time
import traceback
import unittest

import torch.distributed as dist
import torch.testing._internal.common_distributed  # noqa: F401  (once, before the forks)
from listening_agents import listening_agents

# What makes a TCPStore; the others never connect to anything.
CLASSES = (
    *("TCPStoreTest", "LibUvTCPStoreTest", "PrefixTCPStoreTest", "PrefixStoreTest", "RendezvousEnvTest", "RendezvousTCPTest"),
    *("TestMultiThreadedWait", "TimeoutTest", "InitPgWithNonUvStore", "TestClientProtocol"),
)
NOT_APPLICABLE = {
    "test_address_already_in_use": "binds a port for a server in its own process",
    "test_agent_store": "binds a port for a server in its own process",
    "test_multitenancy": "shares a server in its own process",
    "test_take_over_listen_socket": "gives a listening descriptor to a server in its own process",
    "test_store_timeout_on_missing_clients": "the server's own process waits for clients, which no client of it does",
    "test_repr": "the text that describes a server in its own process",
    "test_world_size_0_raises": "ends before it connects",
    "test_common_errors": "ends before it connects",
    "test_dns_timeout": "ends before it connects",
    "test_client_connect": "the test itself is the server",
    "test_wait_hash_store": "a HashStore",
    "test_wait_file_store": "a FileStore",
    "test_wait_prefix_file_store": "a FileStore",
}
TEST_S = 60


def serve_by(agent):
    """From now on a TCPStore that would open a server is a client of the agent."""
    init = dist.TCPStore.__init__

    def client(self, host_name, port, world_size=None, is_master=False, *rest, **options):
        for name in ("multi_tenant", "master_listen_fd"):
            options.pop(name, None)
        at = (agent.host, agent.port) if is_master else (host_name, port)
        # Everything in `rest` after timeout and wait_for_workers is for servers.
        init(self, *at, world_size, False, *rest[:2], **options)

    dist.TCPStore.__init__ = client


def load(path):
    spec = importlib.util.spec_from_file_location("test_store", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["test_store"] = module
    spec.loader.exec_module(module)
    return module


def run_one(path, name, agent):
    """In a process of its own: exits with 0 if the test passed, with 2 if it skipped itself."""
    serve_by(agent)
    suite = unittest.defaultTestLoader.loadTestsFromName(name, load(path))
    said = io.StringIO()
    result = unittest.TextTestRunner(said, verbosity=2).run(suite)
    if not result.wasSuccessful() or result.testsRun != 1:
        print(said.getvalue())
        return 1
    for _, why in result.skipped:
        print(why)
    return 2 if result.skipped else 0


def in_a_fork(work, said, limit=TEST_S):
    """Its exit code, or what ended it; what it writes goes to the file `said`."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with open(said, "w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            code = work()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    end = time.monotonic() + limit
    while (done := os.waitpid(pid, os.WNOHANG))[0] == 0:
        if time.monotonic() > end:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            return f"not over after {limit} s"
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(done[1])


def names_in(path, folder):
    """All tests of CLASSES. In a fork: that of TestMultiThreadedWait makes stores as it is loaded."""

    def write():
        tests = []
        module = load(path)
        for name in CLASSES:
            of_class = getattr(module, name, None)
            tests += [f"{name}.{test}" for test in unittest.defaultTestLoader.getTestCaseNames(of_class or object)]
        (folder / "names").write_text("\n".join(tests))
        return 0

    code = in_a_fork(write, folder / "said")
    if code != 0:
        sys.exit(f"cannot read the tests: {code}\n{(folder / 'said').read_text()}")
    return (folder / "names").read_text().split()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=pathlib.Path)
    parser.add_argument("--only", default="", help="a part of the names of the tests to run")
    parser.add_argument("--verbose", action="store_true", help="also name those that passed")
    arguments = parser.parse_args()
    counts = {"passed": 0, "not applicable": 0, "skipped": 0, "failed": 0}

    def tell(name, what, why=""):
        counts[what] += 1
        if arguments.verbose or what != "passed":
            print(f"{what:14}  {name}{': ' if why else ''}{why}", flush=True)

    with tempfile.TemporaryDirectory() as root:
        names = [name for name in names_in(arguments.path, pathlib.Path(root)) if arguments.only in name]
    for name in names:
        why = NOT_APPLICABLE.get(name.split(".")[1])
        if why:
            tell(name, "not applicable", why)
            continue
        with tempfile.TemporaryDirectory() as root:
            folder = pathlib.Path(root)
            with listening_agents(folder) as (agent,):
                code = in_a_fork(functools.partial(run_one, arguments.path, name, agent), folder / "said")
            if code == 0:
                tell(name, "passed")
            elif code == 2:
                tell(name, "skipped", (folder / "said").read_text().splitlines()[-1])
            else:
                tell(name, "failed", f"{code}\n{(folder / 'said').read_text()}")
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
