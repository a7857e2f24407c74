# SPDX-License-Identifier: Apache-2.0
ddprun_add_gtest(NAME integration_library TORCH LABEL integration TIMEOUT 120
  SOURCES library_loop_test.cc library_test.cc ranks.cc
  LIBS ddprun_worker_library ddprun_rendezvous_server ddprun_rendezvous_client)
