# SPDX-License-Identifier: Apache-2.0
ddprun_add_gtest(NAME integration_worker_checkpoint TORCH LABEL integration TIMEOUT 120
  SOURCES checkpoint_crash_test.cc safetensors_test.cc
  LIBS ddprun_worker_checkpoint)
target_compile_definitions(integration_worker_checkpoint PRIVATE
  DDPRUN_TEST_PYTHON="${DDPRUN_PYTHON}" DDPRUN_TEST_SOURCE_DIR="${CMAKE_CURRENT_SOURCE_DIR}")
