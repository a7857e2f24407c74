# SPDX-License-Identifier: Apache-2.0
ddprun_add_gtest(NAME unit_worker_files TORCH LABEL unit
  SOURCES
    files_safetensors_test.cc
    files_state_dict_test.cc
    files_torch_archive_test.cc
  LIBS ddprun_worker_files)
