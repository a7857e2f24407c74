# SPDX-License-Identifier: Apache-2.0
"""Which case of torchrun_cases.py, or which test, compares each of torchrun's flags and variables."""

from torchrun_cases import CASES

# Those of 2.11; test_torchrun_parity.py asks its help whether these are all.
FLAGS = {
    "--nnodes": ["two nodes", "two nodes of three"],
    "--nproc-per-node": ["two nodes of unlike size", "as many workers as there are", "as many workers as CPUs"],
    "--rdzv-backend": ["two nodes, c10d"],
    "--rdzv-endpoint": ["two nodes, c10d", "a static endpoint"],
    "--rdzv-id": ["two nodes"],
    "--rdzv-conf": ["two nodes, c10d", "two nodes of three"],
    "--standalone": ["standalone"],
    "--max-restarts": ["a restart", "a restart of two nodes"],
    "--monitor-interval": ["handlers"],
    "--start-method": ["handlers", "runpy, forked"],
    "--event-log-handler": ["handlers"],
    "--role": ["two roles"],
    "--module": ["a module"],
    "--no-python": ["no Python"],
    "--run-path": ["runpy", "runpy, forked"],
    "--log-dir": ["logs", "no logs", "test_torchrun_parity_ends.py::test_log_folders_have_the_same_in_them"],
    "--redirects": ["logs", "test_logs.py::test_mappings_and_redirects_as_under_torchrun"],
    "--tee": ["logs", "test_logs.py::test_tee_and_filters_as_under_torchrun"],
    "--local-ranks-filter": ["logs", "test_logs.py::test_the_console_shows_the_same_ranks"],
    "--duplicate-stdout-filters": ["test_logs.py::test_tee_and_filters_as_under_torchrun"],
    "--duplicate-stderr-filters": ["test_logs.py::test_tee_and_filters_as_under_torchrun"],
    "--node-rank": ["two nodes", "two roles"],
    "--master-addr": ["two nodes", "a master that has a name"],
    "--master-port": ["one worker"],
    "--local-addr": ["an address of its own"],
    "--logs-specs": ["test_torchrun_parity_ends.py::test_what_torchrun_refuses_is_refused"],
    "--numa-binding": ["test_numa_binding.py::test_same_cpus_as_torch"],
    "--signals-to-handle": ["other signals", "test_torchrun_parity_ends.py::test_workers_get_the_same_signals"],
    "--virtual-local-rank": ["virtual local ranks", "test_gpus.py::test_virtual_local_ranks_are_torchruns"],
}

# Flags of torch.distributed.launch.
LAUNCH_FLAGS = {
    "--use-env": ["torch.distributed.launch", "test_torchrun_parity_ends.py::test_a_local_rank_as_an_argument"],
}

# Flags of 2.12 to 2.15, beside those of 2.11.
LATER_FLAGS = {
    "--shutdown-timeout": ["test_torchrun_parity_ends.py::test_a_time_to_end"],
    "--log-line-prefix-template": [
        "test_torchrun_parity_ends.py::test_a_prefix_of_2_14",
        "test_torchrun_parity_ends.py::test_torchruns_own_prefix",
    ],
    "--print-completion": ["test_completion.py::test_bash_completes"],
}

# What workers find that their launcher was not given.
SET = {
    **dict.fromkeys(
        "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_NAME ROLE_RANK ROLE_WORLD_SIZE".split(),
        ["one worker", "two nodes", "two nodes, c10d", "two nodes of unlike size", "two roles"],
    ),
    **dict.fromkeys(["MASTER_ADDR", "MASTER_PORT"], ["one worker", "two nodes", "an address of its own"]),
    "TORCHELASTIC_RESTART_COUNT": ["a restart", "a restart of two nodes"],
    "TORCHELASTIC_MAX_RESTARTS": ["a restart", "two nodes, c10d"],
    "TORCHELASTIC_RUN_ID": ["two nodes", "standalone"],
    "TORCHELASTIC_USE_AGENT_STORE": [
        "one worker",
        "a store of the workers' own",
        "test_torchrun_parity_torch.py::test_the_store_of_the_agent",
        "test_tcpstore.py::test_two_nodes_with_a_restart",
    ],
    "TORCHELASTIC_ERROR_FILE": ["one worker", "test_torchrun_parity_ends.py::test_error_files_have_the_same_in_them"],
    "TORCHELASTIC_SIGNALS_TO_HANDLE": ["other signals"],
    "TORCHELASTIC_TIMER_FILE": ["a timer and a health check"],
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": ["one worker", "variables of a person"],
    **dict.fromkeys(
        "TORCH_FR_DUMP_TEMP_FILE TORCH_NCCL_DEBUG_INFO_TEMP_FILE TORCH_NCCL_DEBUG_INFO_PIPE_FILE TORCH_NCCL_DUMP_ON_TIMEOUT".split(),
        ["one worker", "test_flight_recorder.py::test_the_variables_of_a_person_stay"],
    ),
    "OMP_NUM_THREADS": ["two nodes", "variables of a person"],
    "CUDA_VISIBLE_DEVICES": ["virtual local ranks", "variables of a person"],
    "HIP_VISIBLE_DEVICES": ["test_accelerators.py::test_amd_gpus_are_gpus"],
    "ZE_AFFINITY_MASK": ["test_accelerators.py::test_intel_gpus"],
    "ASCEND_RT_VISIBLE_DEVICES": ["test_accelerators.py::test_ascend_npus"],
    "GLOO_SOCKET_IFNAME": ["two nodes", "test_interfaces.py::test_gloo_works_with_nothing_set"],
    "NCCL_SOCKET_IFNAME": ["two nodes", "test_interfaces.py::test_gloo_works_with_nothing_set"],
    "DDPRUN_AGENT_SOCKET": ["one worker"],
    "DDPRUN_NOTIFY_SOCKET": ["one worker"],
    "DDPRUN_ROUND": ["one worker"],
    "DDPRUN_ONE_ROUND": ["one worker"],
    "TRACEPARENT": ["test_traces.py::test_a_run_that_recovers_is_one_trace"],
}

# What launchers read. "*": all that begin so.
READ = {
    "PET_<FLAG>": ["all by variables", "test_torchrun_surface.py::test_variables_are_defaults_of_flags_as_there"],
    "PYTHON_EXEC": ["another Python"],
    "OMP_NUM_THREADS": ["variables of a person"],
    "LOGLEVEL": ["variables of a person", "test_torchrun_surface.py::test_what_has_no_effect_is_said_to_those_who_ask"],
    "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": [
        "a prefix by variable",
        "test_logs.py::test_tee_and_filters_as_under_torchrun",
    ],
    "TORCHELASTIC_SIGNALS_TO_HANDLE": ["signals by variable"],
    "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": ["test_torchrun_parity_ends.py::test_a_time_to_end"],
    "TORCHELASTIC_ENABLE_FILE_TIMER": ["a timer and a health check"],
    "TORCHELASTIC_TIMER_FILE": ["variables of a person"],
    "TORCHELASTIC_HEALTH_CHECK_PORT": ["a timer and a health check"],
    "TORCHELASTIC_ERROR_FILE": [
        "variables of an outer run",
        "test_torchrun_parity_ends.py::test_error_files_have_the_same_in_them",
    ],
    "TORCH_ELASTIC_WORKER_IDENTICAL": ["workers alike"],
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": ["a store of the workers' own"],
    "TORCHELASTIC_ETCD_BINARY_PATH": ["variables of a person"],
    "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT": ["variables of a person"],
    "TORCH_ELASTIC_EXIT_BARRIER_TIMEOUT": ["variables of a person"],
    "TORCH_WORKER_SERVER_SOCKET": ["variables of a person"],
    "USE_LIBUV": ["variables of a person"],
    "TORCH_NCCL_*": ["variables of a person"],
    "TORCH_FR_*": ["variables of a person"],
    "TORCH_DISTRIBUTED_DEBUG": ["variables of a person"],
    "GLOO_*": ["variables of a person"],
    "NCCL_*": ["variables of a person"],
    "HIP_VISIBLE_DEVICES": ["variables of a person", "test_accelerators.py::test_amd_gpus_are_gpus"],
    "ROCR_VISIBLE_DEVICES": ["test_accelerators.py::test_amd_gpus_are_gpus"],
    "ZE_AFFINITY_MASK": ["test_accelerators.py::test_intel_gpus"],
    "ZE_FLAT_DEVICE_HIERARCHY": ["test_accelerators.py::test_tiles_of_intel_gpus"],
    "ASCEND_RT_VISIBLE_DEVICES": ["test_accelerators.py::test_ascend_npus"],
}

# The rows of "Defects of torchrun that ddprun does not have" on launcher/TORCHRUN.md, by how they begin.
WRONG = {
    "`$$` in the program's arguments": ["test_torchrun_surface.py::test_two_dollars_stay_two"],
    "`--redirects 10:1`": ["test_logs.py::test_local_ranks_of_ten_and_more"],
    "`--rdzv-conf` ignores unknown": ["test_bad_input.py::test_launcher_arguments"],
    "a run without a name": ["a static endpoint", "standalone"],
    "each node counts its own restarts": ["a restart of two nodes"],
    "a node that joins a running elastic job": ["test_in_place.py::test_a_join_does_what_was_asked_for"],
    "the logs of earlier restarts": ["test_torchrun_parity_ends.py::test_log_folders_have_the_same_in_them"],
    "the exit code is always 1": ["test_torchrun_parity_ends.py::test_what_the_others_get_when_one_fails"],
    "a joining node can end a healthy run": [
        "test_restarts.py::test_an_elastic_run_goes_on_without_it_until_its_cool_down_is_over"
    ],
    "`--standalone` hangs": ["test_torchrun_parity_ends.py::test_standalone_is_one_node"],
    "`nohup torchrun` ends": ["what a process inherits"],
    "every run leaves a temporary log folder": ["test_torchrun_parity_ends.py::test_what_is_left_in_the_temporary_folder"],
    "`OMP_NUM_THREADS` is set to 1": ["two nodes"],
    "in a Slurm step or Pod": ["test_torchrun_surface.py::test_a_world_of_one_in_a_step_of_many_is_said"],
}


def case_named(name):
    found = [case for case in CASES if case.name == name]
    assert len(found) == 1, f"{len(found)} cases are called {name!r}"
    return found[0]

