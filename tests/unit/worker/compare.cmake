# SPDX-License-Identifier: Apache-2.0
ddprun_add_gtest(NAME unit_worker_compare TORCH LABEL unit SOURCES comparison_test.cc LIBS ddprun_worker_app)
