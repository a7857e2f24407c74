# SPDX-License-Identifier: Apache-2.0
# A driver in the place of NVIDIA's: found first by those that look into build/tests/fake_cuda.
add_library(fake_cuda_driver SHARED ../../testing/fake_cuda_driver.c)
target_compile_options(fake_cuda_driver PRIVATE -Wall -Wextra -Werror)
set_target_properties(fake_cuda_driver PROPERTIES
  OUTPUT_NAME cuda SUFFIX .so.1 LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/fake_cuda)

ddprun_add_gtest(NAME integration_worker_devices TORCH LABEL integration TIMEOUT 120
  SOURCES device_agreement_test.cc ranks.cc
  LIBS ddprun_worker_distributed ddprun_rendezvous_client)
set_target_properties(integration_worker_devices PROPERTIES BUILD_RPATH "$ORIGIN/fake_cuda")
add_dependencies(integration_worker_devices fake_cuda_driver)
