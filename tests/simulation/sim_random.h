// SPDX-License-Identifier: Apache-2.0
// Random numbers that are the same on every machine and in every standard library (std's
// distributions are not): a seed that failed fails everywhere.
#pragma once

#include <chrono>
#include <cstdint>

#include "rendezvous/values/session_types.h"

namespace ddprun {

// SplitMix64 (Steele, Lea, Flood 2014).
class SimRandom {
 public:
  explicit SimRandom(std::uint64_t seed) : state_(seed) {}

  std::uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // From 0; `limit` > 0.
  std::uint64_t Below(std::uint64_t limit) {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(Next()) * limit) >> 64);
  }
  // Nothing is drawn for what is never or always so.
  bool Chance(double probability) {
    if (probability <= 0) return false;
    if (probability >= 1) return true;
    return static_cast<double>(Next() >> 11) * 0x1p-53 < probability;
  }
  // Both included.
  Duration Between(Duration least, Duration most) {
    return least + Duration(static_cast<Duration::rep>(
                       Below(static_cast<std::uint64_t>((most - least).count()) + 1)));
  }
  // A source of its own: what is drawn from one does not change what the other gives.
  SimRandom Fork() { return SimRandom(Next()); }

 private:
  std::uint64_t state_;
};

}  // namespace ddprun
