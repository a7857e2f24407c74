# SPDX-License-Identifier: Apache-2.0
ddprun_add_gtest(NAME unit_worker_checkpoint TORCH LABEL unit
  SOURCES
    checkpoint_file_test.cc
    checkpoint_folder_test.cc
    checkpoint_resume_test.cc
    checkpoint_stop_signal_test.cc
    checkpoint_folder_lock_test.cc
    checkpoint_header_fields_test.cc
    checkpoint_writer_test.cc
  LIBS ddprun_worker_checkpoint)
