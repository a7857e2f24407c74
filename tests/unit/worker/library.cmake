# SPDX-License-Identifier: Apache-2.0
ddprun_add_gtest(NAME unit_worker_library TORCH LABEL unit
  SOURCES
    library_gradient_weight_test.cc
    library_step_order_test.cc
    library_tracked_test.cc
  LIBS ddprun_worker_library)
