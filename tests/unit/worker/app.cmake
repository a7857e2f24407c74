# SPDX-License-Identifier: Apache-2.0
ddprun_add_gtest(NAME unit_worker_app TORCH LABEL unit
  SOURCES
    app_config_text_test.cc
    app_launch_test.cc
    app_tuning_test.cc
    config_agreement_test.cc
    config_choices_test.cc
    config_recipe_test.cc
  LIBS ddprun_worker_app)

# An executable of its own: what it adds to the registries is there for all tests of a program.
ddprun_add_gtest(NAME unit_worker_registry TORCH LABEL unit SOURCES registry_test.cc LIBS ddprun_worker_app)
