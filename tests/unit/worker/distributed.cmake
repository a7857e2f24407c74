# SPDX-License-Identifier: Apache-2.0
ddprun_add_gtest(NAME unit_worker_distributed TORCH LABEL unit
  SOURCES
    atomic_file_test.cc
    distributed_bucket_layout_test.cc
    distributed_flight_record_test.cc
    distributed_nccl_settings_test.cc
    distributed_rank_device_test.cc
    distributed_roll_call_test.cc
    distributed_stall_reporter_test.cc
    distributed_step_vote_test.cc
    distributed_background_task_test.cc
    distributed_world_store_test.cc
    interrupt_test.cc
    round_listener_test.cc
  LIBS ddprun_worker_distributed ddprun_worker_files)
