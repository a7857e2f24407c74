# SPDX-License-Identifier: Apache-2.0
ddprun_add_gtest(NAME integration_worker_data TORCH LABEL integration
  SOURCES image_decoder_test.cc
  LIBS ddprun_worker_data)
