// SPDX-License-Identifier: Apache-2.0
// Measures how much of the averaging of gradients is hidden behind backward.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>

#include "ddprun/distributed_data_parallel.h"

namespace ddprun {

// Thread-safe. Begin() and End() once for each bucket.
class GradientMeter {
 public:
  using Clock = std::chrono::steady_clock;

  // `last`: of this backward; from now on this rank has nothing else to do.
  void Begin(std::int64_t bytes, bool last, Clock::time_point now = Clock::now()) {
    const std::lock_guard lock(mutex_);
    traffic_.bytes += bytes;
    if (on_their_way_++ == 0) busy_since_ = now;
    if (last) idle_since_ = now;
    last_seen_ = last;
  }

  void End(Clock::time_point now = Clock::now()) {
    const std::lock_guard lock(mutex_);
    if (--on_their_way_ > 0) return;
    traffic_.averaging_seconds += Seconds(now - busy_since_);
    if (last_seen_) traffic_.waited_seconds += Seconds(now - idle_since_);
  }

  GradientTraffic Read() const {
    const std::lock_guard lock(mutex_);
    return traffic_;
  }

 private:
  static double Seconds(Clock::duration time) {
    return std::chrono::duration<double>(time).count();
  }

  mutable std::mutex mutex_;
  GradientTraffic traffic_;
  int on_their_way_ = 0;
  bool last_seen_ = false;
  Clock::time_point busy_since_{};
  Clock::time_point idle_since_{};
};

}  // namespace ddprun
