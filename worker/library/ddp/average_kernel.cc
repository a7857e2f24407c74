// SPDX-License-Identifier: Apache-2.0
#include "worker/library/ddp/average_kernel.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "worker/library/base/for_each_cpu.h"

namespace ddprun {
namespace {

constexpr std::size_t kBlock = 2048;  // 8 KiB: stays in the nearest cache while all ranks are added

DDPRUN_FOR_EACH_CPU
void Scale(float* __restrict sum, const float* __restrict from, std::size_t size, float factor) {
  for (std::size_t i = 0; i < size; ++i) sum[i] = from[i] * factor;
}

DDPRUN_FOR_EACH_CPU
void AddScaled(float* __restrict sum, const float* __restrict from, std::size_t size,
               float factor) {
  for (std::size_t i = 0; i < size; ++i) {
    const float scaled = from[i] * factor;
    sum[i] += scaled;
  }
}

}  // namespace

void ScaleAndSum(const std::vector<float*>& ranks, std::size_t begin, std::size_t end,
                 float factor) {
  std::array<float, kBlock> sum;
  for (std::size_t at = begin; at < end; at += kBlock) {
    const std::size_t size = std::min(kBlock, end - at);
    Scale(sum.data(), ranks[0] + at, size, factor);
    for (std::size_t rank = 1; rank < ranks.size(); ++rank)
      AddScaled(sum.data(), ranks[rank] + at, size, factor);
    for (float* rank : ranks) std::memcpy(rank + at, sum.data(), size * sizeof(float));
  }
}

}  // namespace ddprun
