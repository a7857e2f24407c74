# SPDX-License-Identifier: Apache-2.0
ddprun_add_gtest(NAME unit_worker_kernels TORCH LABEL unit
  SOURCES
    kernels_embedded_test.cc  # first: its module must be opened before LibTorch is asked about CUDA
    kernels_batch_norm_test.cc
    kernels_batch_test.cc
    kernels_emulator_test.cc
    kernels_max_pool_test.cc
  LIBS ddprun_worker_data ddprun_worker_kernels ddprun_worker_models ddprun_emulated_kernels)
# CUDA's words are for this file alone.
set_source_files_properties(kernels_emulator_test.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
if(TARGET compile_kernels)
  target_compile_definitions(unit_worker_kernels PRIVATE DDPRUN_HAS_KERNELS)
endif()
