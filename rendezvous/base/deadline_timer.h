// SPDX-License-Identifier: Apache-2.0
// One thread that sleeps until the earliest deadline anyone has asked for. There is no period:
// without a deadline it sleeps for ever.
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
  // `on_deadline` runs on the timer's thread and says when it wants to be called next, if at all.
  using OnDeadline = std::function<std::optional<TimePoint>(TimePoint now)>;

  explicit DeadlineTimer(OnDeadline on_deadline);
  ~DeadlineTimer();  // returns when `on_deadline` will not be called again

  DeadlineTimer(const DeadlineTimer&) = delete;
  DeadlineTimer& operator=(const DeadlineTimer&) = delete;

  // Calls no later than then. Threadsafe; a deadline that is later than one already asked for costs
  // nothing.
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
