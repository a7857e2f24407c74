// SPDX-License-Identifier: Apache-2.0
// The argument of muon.cu's kernels: NVRTC and the host's compiler see the same.
#pragma once

namespace ddprun::device {

// Values that a block changes.
inline constexpr int kMuonChunk = 2048;
// All of them are within the 4096 bytes that any driver takes as arguments.
inline constexpr int kMuonTensorsMax = 64;

// The type of the casts of a launch.
enum class MuonCast : int { kBFloat16, kHalf };

// A bank of filters and what belongs to it: as many values, in the same order in memory, one filter
// after the other.
struct MuonTensor {
  float* weight;
  const float* gradient;
  float* velocity;
  void* cast;         // of the weights to another type; null for none
  const float* norm;  // of all weights together
  int filters;
  int numbers;  // of a filter
};

struct MuonTensors {
  MuonTensor tensor[kMuonTensorsMax];
  int block_end[kMuonTensorsMax];  // the first block that is not this tensor's or an earlier one's
};
static_assert(sizeof(MuonTensors) <= 4000);

}  // namespace ddprun::device
