# SPDX-License-Identifier: Apache-2.0
# An executable of its own: it changes the allocator of the whole process.
ddprun_add_gtest(NAME unit_worker_memory TORCH LABEL unit
  SOURCES memory_best_fit_allocator_test.cc memory_huge_page_allocator_test.cc
  LIBS ddprun_worker_memory)
