// SPDX-License-Identifier: Apache-2.0
// CUDA's words for the emulator: what a .cu needs to be compiled for the CPU.
#pragma once

#include "tests/testing/cuda_emulator.h"

#define __global__
#define __device__
#define __shared__ static thread_local
#define __launch_bounds__(...)
#define threadIdx ::ddprun::emulator::thread_index
#define blockIdx ::ddprun::emulator::block_index
#define blockDim ::ddprun::emulator::block_size
#define gridDim ::ddprun::emulator::grid_size

inline void __syncthreads() { ::ddprun::emulator::SynchronizeBlock(); }
inline float __uint_as_float(unsigned bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
inline float rsqrtf(float value) { return 1.0f / std::sqrt(value); }
inline double rsqrt(double value) { return 1.0 / std::sqrt(value); }

namespace ddprun::device {
inline unsigned short BFloat16Bits(float value) { return emulator::BFloat16OfFloat(value); }
inline unsigned short HalfBits(float value) { return emulator::HalfOfFloat(value); }
inline float FloatOfHalf(unsigned short bits) { return emulator::FloatOfHalfBits(bits); }
}  // namespace ddprun::device
