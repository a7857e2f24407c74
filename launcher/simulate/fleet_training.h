// SPDX-License-Identifier: Apache-2.0
// The training of a simulated run: how far it is, what a restart loses, and what time is spent on.
// Pure.
#pragma once

#include <algorithm>
#include <cmath>

namespace ddprun {

// Work is counted in seconds of the whole fleet.
class FleetTraining {
 public:
  struct Spent {
    double training = 0;
    double again = 0;
    double checkpoint = 0;
  };

  // A checkpoint after each `every` seconds of steps stalls all for `cost` seconds.
  FleetTraining(double every, double cost) : every_(every), cost_(cost) {}

  // The ranks run for `seconds`, and are this share of the fleet.
  Spent Run(double seconds, double share) {
    const double cycle = every_ + cost_;
    const double before = WorkIn(in_cycle_);
    const double whole = std::floor((in_cycle_ + seconds) / cycle);
    const double rest = in_cycle_ + seconds - whole * cycle;
    const double work = whole * every_ + WorkIn(rest) - before;
    if (whole > 0) saved_ = done_ + share * (whole * every_ - before);
    in_cycle_ = rest;
    Spent spent;
    spent.checkpoint = (seconds - work) * share;
    spent.again = std::clamp(furthest_ - done_, 0.0, work * share);
    spent.training = work * share - spent.again;
    done_ += work * share;
    furthest_ = std::max(furthest_, done_);
    return spent;
  }

  void GoBackToCheckpoint() {
    done_ = saved_;
    in_cycle_ = 0;
  }

 private:
  double WorkIn(double part_of_cycle) const { return std::min(part_of_cycle, every_); }

  const double every_;
  const double cost_;
  double in_cycle_ = 0;  // seconds since the last checkpoint was complete
  double done_ = 0;
  double saved_ = 0;
  double furthest_ = 0;
};

}  // namespace ddprun
