# SPDX-License-Identifier: Apache-2.0
# Damaged memory in ranks that train: --check-replicas.
ddprun_add_gtest(NAME integration_worker_replicas TORCH LABEL integration TIMEOUT 300
  SOURCES replica_check_test.cc ranks.cc
  LIBS ddprun_worker_training ddprun_rendezvous_server ddprun_rendezvous_client)
