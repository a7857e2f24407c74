# SPDX-License-Identifier: Apache-2.0
ddprun_add_gtest(NAME unit_worker_data TORCH LABEL unit
  SOURCES
    data_augment_test.cc
    data_cifar_test.cc
    data_dataset_test.cc
    data_epoch_plan_test.cc
    data_idx_test.cc
    data_image_decoder_test.cc
    data_image_folder_test.cc
    data_image_for_model_test.cc
    data_loader_test.cc
    data_gpu_images_test.cc
    data_sampler_test.cc
    data_sample_split_test.cc
    loader_step_batches_test.cc
  LIBS ddprun_worker_data)
