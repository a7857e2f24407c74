# SPDX-License-Identifier: Apache-2.0
# Gradients in memory that the ranks share, and gradients of 16 bits.
ddprun_add_gtest(NAME integration_worker_gradients TORCH LABEL integration TIMEOUT 120
  SOURCES gradients_test.cc ranks.cc
  LIBS ddprun_worker_distributed ddprun_rendezvous_server ddprun_rendezvous_client)
