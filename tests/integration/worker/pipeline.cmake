# SPDX-License-Identifier: Apache-2.0
ddprun_add_gtest(NAME integration_pipeline TORCH LABEL integration TIMEOUT 240
  SOURCES pipeline_test.cc ranks.cc
  LIBS ddprun_worker_training ddprun_rendezvous_server ddprun_rendezvous_client)
