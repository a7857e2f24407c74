// SPDX-License-Identifier: Apache-2.0
// Random numbers that are a function of their purpose (seed, epoch, position), so they are the same
// on every machine, whatever else was drawn before and by which thread.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace ddprun {

// SplitMix64 (Steele, Lea, Flood 2014): passes BigCrush, and any state is a good one.
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t state) : state_(state) {}

  // A stream of its own for each tuple of coordinates, such as seed, epoch, rank and position.
  explicit SplitMix64(std::initializer_list<std::uint64_t> coordinates) : state_(0) {
    for (const std::uint64_t coordinate : coordinates)
      state_ = SplitMix64(state_ ^ coordinate).Next();
  }

  std::uint64_t Next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  // In [0, bound). The bias is bound / 2^32, nothing for the small bounds here.
  std::uint32_t Below(std::uint32_t bound) {
    return static_cast<std::uint32_t>(((Next() >> 32) * bound) >> 32);
  }

 private:
  std::uint64_t state_;
};

}  // namespace ddprun
