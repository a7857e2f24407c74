// SPDX-License-Identifier: Apache-2.0
// For how long this service is sure that it leads: its lease, counted from before etcd was asked to
// extend it.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "rendezvous/base/clock.h"

namespace ddprun {

// Threadsafe.
class LeaderTerm {
 public:
  void ExtendTo(TimePoint end) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      end_ = std::max(end_, end);
    }
    changed_.notify_all();
  }

  // It leads no longer, and will not again.
  void End() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_all();
  }

  // Whether it leads at some moment until `deadline`; waits for that moment.
  bool Await(TimePoint deadline) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!is_over_ && end_ <= std::chrono::steady_clock::now()) {
      if (changed_.wait_until(lock, deadline) == std::cv_status::timeout &&
          std::chrono::steady_clock::now() >= deadline) {
        return false;
      }
    }
    return !is_over_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  TimePoint end_ ABSL_GUARDED_BY(mutex_){};
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ddprun
