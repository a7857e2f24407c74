# SPDX-License-Identifier: Apache-2.0
"""Programs of well-known packages, unchanged, on two nodes and with a restart: what they find at MASTER_ADDR and
MASTER_PORT is what they find there under torchrun."""

import pathlib

import pytest
from conftest import DDPRUN, clean_environment, finish_all, free_port, start
from hosts import two_hosts  # noqa: F401  (a fixture)

PROGRAM = pathlib.Path(__file__).resolve().parent / "package_jobs.py"
JOBS = ["transformers", "store_of_its_own"]
JOBS += [pytest.param(name, marks=pytest.mark.nightly) for name in ("accelerate", "fsdp2_and_checkpoint", "lightning", "rpc")]


def run_job(hosts, name, folder, *flags):
    command = ["--nnodes", "2", "--master-addr", hosts[0].address, "--max-restarts", "1", *flags, PROGRAM, name, folder]
    env = clean_environment(OMP_NUM_THREADS="1", OWN_STORE_PORT=str(free_port()), TP_SOCKET_IFNAME="eth0")
    return finish_all(
        [start([*host.prefix, DDPRUN, "--node-rank", rank, *command], env=env) for rank, host in enumerate(hosts)]
    )


@pytest.mark.parametrize("name", JOBS)
def test_a_job_on_two_nodes_with_a_restart(two_hosts, tmp_path, name):  # noqa: F811
    results = run_job(two_hosts, name, tmp_path)
    assert [code for code, _, _ in results] == [0, 0], "\n".join(out + err for _, out, err in results)
    assert f"{name}: done in restart 1" in results[0][1], results
