# SPDX-License-Identifier: Apache-2.0
ddprun_add_gtest(NAME unit_worker_models TORCH LABEL unit
  SOURCES
    models_airbench_test.cc
    models_batch_norm_test.cc
    models_example.cc
    models_example_test.cc
    models_fused_norm_test.cc
    models_test.cc
  LIBS ddprun_worker_models)
