// SPDX-License-Identifier: Apache-2.0
// Axis limits and ticks at round numbers.
#pragma once

#include <string>
#include <vector>

namespace ddprun {

struct Axis {
  double least = 0;  // ends of the axis
  double most = 1;
  std::vector<double> ticks;  // within, ascending
  int digits = 0;             // decimals that distinguish the ticks
};

// An axis from `least` to `most` with about `wanted` ticks at multiples of 1, 2 or 5 times a power
// of ten; `to_ticks` extends it to a tick at both ends.
Axis MakeAxis(double least, double most, int wanted, bool to_ticks);

// "0.25", "1500", "20k", "3M".
std::string TickText(double tick, int digits);

}  // namespace ddprun
