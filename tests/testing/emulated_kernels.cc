// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/emulated_kernels.h"

#include "tests/testing/cuda_words.h"

// Compilers for the CPU do not know CUDA's pragmas.
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#include "worker/kernels/batch.cu"

namespace ddprun {

std::unique_ptr<CudaEmulator> EmulatedKernels(int multiprocessors) {
  auto all = std::make_unique<CudaEmulator>(multiprocessors);
#define DDPRUN_ADD(KERNEL) all->Add(#KERNEL, &KERNEL)
#define DDPRUN_ADD_TYPES(KERNEL) \
  DDPRUN_ADD(KERNEL##_float);    \
  DDPRUN_ADD(KERNEL##_bf16);     \
  DDPRUN_ADD(KERNEL##_fp16)
  DDPRUN_ADD_TYPES(make_batch);
  return all;
}

}  // namespace ddprun
