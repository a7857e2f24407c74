# SPDX-License-Identifier: Apache-2.0
ddprun_add_gtest(NAME unit_worker_export TORCH LABEL unit
  SOURCES
    export_initial_weights_test.cc
    export_run_folder_test.cc
    export_transformers_names_test.cc
  LIBS ddprun_worker_export)
