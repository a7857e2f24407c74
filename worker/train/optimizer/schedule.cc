// SPDX-License-Identifier: Apache-2.0
#include "worker/train/optimizer/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ddprun {
namespace {

// From `from` to `to` as half a cosine; `done` is a share of the way.
double HalfCosine(double from, double to, double done) {
  return to + (from - to) * 0.5 * (1.0 + std::cos(std::numbers::pi * done));
}

// torch/optim/lr_scheduler.py, OneCycleLR, anneal_strategy="cos", three_phase=False: the phases end
// at steps pct_start * total - 1 and total - 1.
double OneCycle(const Schedule& schedule, std::int64_t step) {
  const double top = schedule.rise_steps - 1;
  const auto last = static_cast<double>(schedule.total_steps - 1);
  const auto at = std::min(static_cast<double>(step), last);
  const double start = schedule.peak_rate * Schedule::kOneCycleStart;
  if (at <= top) return HalfCosine(start, schedule.peak_rate, top > 0 ? at / top : 1.0);
  return HalfCosine(schedule.peak_rate, schedule.peak_rate * Schedule::kOneCycleEnd,
                    (at - top) / (last - top));
}

}  // namespace

double Schedule::RateAt(std::int64_t step) const {
  if (kind == Kind::kOneCycle) return OneCycle(*this, step);
  if (step < warmup_steps) {
    return peak_rate * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  }
  const auto length = static_cast<double>(std::max<std::int64_t>(1, total_steps - warmup_steps));
  const double done = std::min(1.0, static_cast<double>(step - warmup_steps) / length);
  switch (kind) {
    case Kind::kStep:
      return peak_rate * std::pow(gamma, static_cast<double>(step / step_length));
    case Kind::kLinear:
      return peak_rate * (1.0 - done);
    case Kind::kConstant:
      return peak_rate;
    default:
      return peak_rate * 0.5 * (1.0 + std::cos(std::numbers::pi * done));
  }
}

}  // namespace ddprun
