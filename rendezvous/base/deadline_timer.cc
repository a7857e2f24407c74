// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/deadline_timer.h"

#include <utility>

namespace ddprun {

DeadlineTimer::DeadlineTimer(OnDeadline on_deadline)
    : on_deadline_(std::move(on_deadline)), thread_([this] { Loop(); }) {}

DeadlineTimer::~DeadlineTimer() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void DeadlineTimer::Arm(TimePoint deadline) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (deadline_ && *deadline_ <= deadline) return;
    deadline_ = deadline;
  }
  changed_.notify_one();
}

void DeadlineTimer::Loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    if (!deadline_) {
      changed_.wait(lock);
      continue;
    }
    const TimePoint now = std::chrono::steady_clock::now();
    if (now < *deadline_) {
      changed_.wait_until(lock, TimePoint(*deadline_));
      continue;
    }
    deadline_.reset();
    // Unlocked, since the callback may arm the timer, which sets deadline_ again.
    lock.unlock();
    const std::optional<TimePoint> next = on_deadline_(now);
    lock.lock();
    deadline_ = Earliest({deadline_, next});
  }
}

}  // namespace ddprun
