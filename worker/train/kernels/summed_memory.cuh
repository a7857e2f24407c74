// SPDX-License-Identifier: Apache-2.0
// The argument of sum_words: NVRTC and the host's compiler see the same.
#pragma once

namespace ddprun::device {

// Bytes that a block reads.
inline constexpr int kSummedChunk = 16384;
inline constexpr unsigned kSummedThreads = 256;
// All of them are within the 4096 bytes that any driver takes as arguments.
inline constexpr int kSummedMax = 64;

struct SummedMemory {
  const unsigned char* memory;
  long long bytes;
  unsigned long long factor;
};

struct SummedMemories {
  SummedMemory part[kSummedMax];
  int block_end[kSummedMax];  // the first block that is not this part's or an earlier one's
};
static_assert(sizeof(SummedMemories) <= 4000);

}  // namespace ddprun::device
