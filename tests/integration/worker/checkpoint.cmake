# SPDX-License-Identifier: Apache-2.0
ddprun_add_gtest(NAME integration_worker_checkpoint TORCH LABEL integration TIMEOUT 120
  SOURCES checkpoint_crash_test.cc checkpoint_power_test.cc safetensors_test.cc
  LIBS ddprun_worker_checkpoint)
