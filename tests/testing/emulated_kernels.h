// SPDX-License-Identifier: Apache-2.0
// All kernels of worker/train/kernels, for CPU tensors.
#pragma once

#include <memory>

#include "tests/testing/cuda_emulator.h"

namespace ddprun {

// Kernels of a device with so many multiprocessors: more of them are more blocks.
std::unique_ptr<CudaEmulator> EmulatedKernels(int multiprocessors = 2);

}  // namespace ddprun
