// SPDX-License-Identifier: Apache-2.0
// The argument of sgd_step: NVRTC and the host's compiler see the same.
#pragma once

namespace ddprun::device {

// Values that a block changes.
inline constexpr int kSgdChunk = 4096;
// All of them are within the 4096 bytes that any driver takes as arguments.
inline constexpr int kSgdTensorsMax = 64;

// As many values of each, in the same order in memory.
struct SgdTensor {
  float* parameter;
  const float* gradient;
  float* velocity;  // null without momentum
  void* cast;       // in another type; null for none
  long long size;
};

struct SgdTensors {
  SgdTensor tensor[kSgdTensorsMax];
  int block_end[kSgdTensorsMax];  // the first block that is not this tensor's or an earlier one's
};
static_assert(sizeof(SgdTensors) <= 4000);

}  // namespace ddprun::device
