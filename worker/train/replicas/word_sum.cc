// SPDX-License-Identifier: Apache-2.0
#include "worker/train/replicas/word_sum.h"

#include <array>
#include <cstring>

namespace ddprun {

std::uint64_t WordSum(const void* data, std::size_t bytes) {
  // Sums beside each other: one alone would wait for its own result in each cycle.
  constexpr std::size_t kWords = 32;
  using Words = std::array<std::uint64_t, kWords>;
  const auto* at = static_cast<const unsigned char*>(data);
  Words sums{};
  for (; bytes >= sizeof(Words); bytes -= sizeof(Words), at += sizeof(Words)) {
    Words words;
    std::memcpy(words.data(), at, sizeof words);
    for (std::size_t i = 0; i < kWords; ++i) sums[i] += words[i];
  }
  Words rest{};
  if (bytes > 0) std::memcpy(rest.data(), at, bytes);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kWords; ++i) sum += sums[i] + rest[i];
  return sum;
}

}  // namespace ddprun
