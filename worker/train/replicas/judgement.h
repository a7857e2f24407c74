// SPDX-License-Identifier: Apache-2.0
// What the ranks' checksums say: whether all have the same values, and which rank is damaged if
// not. Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace ddprun {

// What one rank has at a check.
struct ReplicaSums {
  std::int64_t state = 0;       // parameters, optimizer state, scale, average
  std::int64_t steps = 0;       // the parameters before each update since the check before
  std::int64_t not_finite = 0;  // the first step since then whose loss was not finite; 0: none
};

struct Judgement {
  bool agree = false;
  bool alike = false;  // though it does not agree: a loss is not finite
  // The ranks unlike those that are alike; empty if no group of ranks is the largest.
  std::vector<int> odd = {};
};

// Judges all ranks' sums, in rank order. Two or more ranks that agree are right: random damage does
// not strike twice alike.
Judgement Judge(const std::vector<ReplicaSums>& ranks);

// A rank that has not differed.
inline constexpr std::int64_t kNeverDiffered = std::numeric_limits<std::int64_t>::max();

// Which rank was damaged when steps were made the first time, by the first value of each rank that
// did not come out again when they were repeated. A damaged rank's gradients change the parameters
// of the others only in the step after. Nothing if no rank differs, or several do first.
std::optional<int> FirstToDiffer(const std::vector<std::int64_t>& ranks);

}  // namespace ddprun
