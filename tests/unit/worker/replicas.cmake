# SPDX-License-Identifier: Apache-2.0
ddprun_add_gtest(NAME unit_worker_replicas TORCH LABEL unit
  SOURCES replicas_judgement_test.cc replicas_tensor_sums_test.cc
  LIBS ddprun_worker_training ddprun_emulated_kernels)
