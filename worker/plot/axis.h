// SPDX-License-Identifier: Apache-2.0
// Round numbers for an axis.
#pragma once

#include <string>
#include <vector>

namespace ddprun {

struct Axis {
  double least = 0;  // where the axis begins and ends
  double most = 1;
  std::vector<double> ticks;  // within, ascending
  int digits = 0;             // that tell the ticks apart
};

// An axis with about `wanted` ticks at multiples of 1, 2 or 5 times a power of ten, which holds all
// from `least` to `most`; `to_ticks` widens it to a tick on both sides.
Axis MakeAxis(double least, double most, int wanted, bool to_ticks);

// "0.25", "1500", "20k", "3M".
std::string TickText(double tick, int digits);

}  // namespace ddprun
