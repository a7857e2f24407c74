# SPDX-License-Identifier: Apache-2.0
ddprun_add_gtest(NAME integration_worker_steps TORCH LABEL integration TIMEOUT 120
  SOURCES device_steps_test.cc kept_steps_test.cc training_loop_test.cc ranks.cc
  LIBS ddprun_worker_training ddprun_emulated_kernels ddprun_rendezvous_server ddprun_rendezvous_client)
