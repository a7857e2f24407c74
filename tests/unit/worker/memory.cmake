# SPDX-License-Identifier: Apache-2.0
# An executable of its own: it changes malloc of the whole process.
ddprun_add_gtest(NAME unit_worker_memory TORCH LABEL unit
  SOURCES memory_keep_freed_memory_test.cc
  LIBS ddprun_worker_memory)
