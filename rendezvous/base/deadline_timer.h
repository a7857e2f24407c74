// SPDX-License-Identifier: Apache-2.0
// One thread that sleeps until the earliest requested deadline. Without a deadline it never wakes
// up.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "rendezvous/base/clock.h"

namespace ddprun {

class DeadlineTimer {
 public:
  // `on_deadline` runs on the timer's thread and returns its next deadline, if any.
  using OnDeadline = std::function<std::optional<TimePoint>(TimePoint now)>;

  explicit DeadlineTimer(OnDeadline on_deadline);
  ~DeadlineTimer();  // returns when `on_deadline` will not be called again

  DeadlineTimer(const DeadlineTimer&) = delete;
  DeadlineTimer& operator=(const DeadlineTimer&) = delete;

  // Calls `on_deadline` at that time at the latest. Threadsafe; a deadline later than the current
  // one costs nothing.
  void Arm(TimePoint deadline);

 private:
  void Loop();

  const OnDeadline on_deadline_;
  std::mutex mutex_;  // guards what follows; std's, since it can wait on the steady clock
  std::condition_variable changed_;
  std::optional<TimePoint> deadline_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace ddprun
