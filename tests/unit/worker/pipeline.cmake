# SPDX-License-Identifier: Apache-2.0
ddprun_add_gtest(NAME unit_worker_pipeline TORCH LABEL unit
  SOURCES
    pipeline_actions_test.cc
    pipeline_partition_test.cc
    pipeline_stage_module_test.cc
  LIBS ddprun_worker_pipeline)
