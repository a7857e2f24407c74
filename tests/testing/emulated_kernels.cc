// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/emulated_kernels.h"

#include "tests/testing/cuda_words.h"
#include "worker/train/kernels/batch.cu"
#include "worker/train/kernels/batch_norm.cu"
#include "worker/train/kernels/batch_norm_backward.cu"
#include "worker/train/kernels/batch_norm_channels.cu"
#include "worker/train/kernels/max_pool.cu"
#include "worker/train/kernels/muon.cu"
#include "worker/train/kernels/sgd.cu"
#include "worker/train/kernels/word_sums.cu"

namespace ddprun {

std::unique_ptr<CudaEmulator> EmulatedKernels(int multiprocessors) {
  auto all = std::make_unique<CudaEmulator>(multiprocessors);
#define DDPRUN_ADD(KERNEL) all->Add(#KERNEL, &KERNEL)
#define DDPRUN_ADD_TYPES(KERNEL) \
  DDPRUN_ADD(KERNEL##_float);    \
  DDPRUN_ADD(KERNEL##_bf16);     \
  DDPRUN_ADD(KERNEL##_fp16)
  DDPRUN_ADD_TYPES(make_batch);
  DDPRUN_ADD_TYPES(norm_moments);
  DDPRUN_ADD_TYPES(norm_apply);
  DDPRUN_ADD_TYPES(norm_gelu_apply);
  DDPRUN_ADD_TYPES(norm_gradient_sums);
  DDPRUN_ADD_TYPES(norm_gelu_gradient_sums);
  DDPRUN_ADD_TYPES(norm_input_gradient);
  DDPRUN_ADD_TYPES(norm_channels);
  DDPRUN_ADD_TYPES(norm_channels_gradient);
  DDPRUN_ADD(norm_statistics);
  DDPRUN_ADD(norm_running_statistics);
  DDPRUN_ADD(norm_rank_sums);
  DDPRUN_ADD(norm_statistics_of_sums);
  DDPRUN_ADD(norm_gradients);
  DDPRUN_ADD_TYPES(pool_moments);
  DDPRUN_ADD_TYPES(pool_input_gradient);
  DDPRUN_ADD_TYPES(sgd_step);
  DDPRUN_ADD(sum_words);
  DDPRUN_ADD_TYPES(muon_directions);
  DDPRUN_ADD_TYPES(muon_update);
  return all;
}

}  // namespace ddprun
