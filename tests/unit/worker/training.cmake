# SPDX-License-Identifier: Apache-2.0
ddprun_add_gtest(NAME unit_worker_training TORCH LABEL unit
  SOURCES
    training_grad_scaler_test.cc
    training_checkpoints_test.cc
    training_gradient_clip_test.cc
    training_length_test.cc
    training_muon_test.cc
    training_optimizer_test.cc
    training_pace_test.cc
    training_precision_test.cc
    training_sample_log_test.cc
    training_schedule_test.cc
    training_step_patience_test.cc
    training_summary_test.cc
    training_test_views_test.cc
    training_weight_average_test.cc
  LIBS ddprun_worker_training)
