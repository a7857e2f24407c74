# SPDX-License-Identifier: Apache-2.0
ddprun_add_gtest(NAME unit_worker_plot LABEL unit
  SOURCES
    plot_axis_test.cc
    plot_curves_test.cc
  LIBS ddprun_worker_plot)
