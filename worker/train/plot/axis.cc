// SPDX-License-Identifier: Apache-2.0
#include "worker/train/plot/axis.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace ddprun {

Axis MakeAxis(double least, double most, int wanted, bool to_ticks) {
  if (!(most > least)) {  // a single value: leave room on both sides
    const double room = std::max(0.5, std::abs(least) * 0.1);
    most = least + room;
    least -= room;
  }
  const double rough = (most - least) / std::max(1, wanted);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double factor = rough / power;
  const double width = power * (factor <= 1.5 ? 1 : factor <= 3.5 ? 2 : factor <= 7.5 ? 5 : 10);
  // Rounding must not lose a tick at the very end.
  const double slack = 1e-9;
  const double first =
      to_ticks ? std::floor(least / width + slack) : std::ceil(least / width - slack);
  const double last = to_ticks ? std::ceil(most / width - slack) : std::floor(most / width + slack);
  Axis axis{.least = to_ticks ? first * width : least, .most = to_ticks ? last * width : most};
  for (double tick = first; tick <= last; ++tick) axis.ticks.push_back(tick * width);
  axis.digits = std::max(0, static_cast<int>(-std::floor(std::log10(width) + slack)));
  return axis;
}

std::string TickText(double tick, int digits) {
  char text[64];
  const double size = std::abs(tick);
  if (digits == 0 && size >= 1e6 && std::fmod(size, 1e5) == 0) {
    std::snprintf(text, sizeof text, "%gM", tick / 1e6);
  } else if (digits == 0 && size >= 1e4 && std::fmod(size, 1e2) == 0) {
    std::snprintf(text, sizeof text, "%gk", tick / 1e3);
  } else {
    std::snprintf(text, sizeof text, "%.*f", digits, tick == 0 ? 0.0 : tick);
  }
  return text;
}

}  // namespace ddprun
