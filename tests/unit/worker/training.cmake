# SPDX-License-Identifier: Apache-2.0
ddprun_add_gtest(NAME unit_worker_training TORCH LABEL unit
  SOURCES
    optimizer_grad_scaler_test.cc
    training_checkpoints_test.cc
    optimizer_gradient_clip_test.cc
    optimizer_by_device_test.cc
    training_kept_test.cc
    training_plan_test.cc
    optimizer_fused_sgd_test.cc
    optimizer_muon_test.cc
    optimizer_test.cc
    step_best_evaluation_test.cc
    step_recent_states_test.cc
    step_recorder_test.cc
    step_run_ahead_limit_test.cc
    step_training_state_test.cc
    parallel_cast_weights_test.cc
    parallel_precision_test.cc
    loader_sample_log_test.cc
    optimizer_schedule_test.cc
    checkpoint_step_patience_test.cc
    training_summary_test.cc
    evaluation_class_counts_test.cc
    evaluation_test_feed_test.cc
    evaluation_test_time_augmentation_test.cc
    optimizer_weight_average_test.cc
  LIBS ddprun_worker_training ddprun_emulated_kernels)
