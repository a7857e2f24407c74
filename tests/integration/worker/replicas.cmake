# SPDX-License-Identifier: Apache-2.0
# What ranks have alike, and damage to it: --check-replicas.
ddprun_add_gtest(NAME integration_worker_replicas TORCH LABEL integration TIMEOUT 300
  SOURCES replica_check_test.cc state_view_test.cc ranks.cc
  LIBS ddprun_worker_training ddprun_rendezvous_server ddprun_rendezvous_client)
