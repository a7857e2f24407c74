// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "rendezvous/base/event_fd.h"
#include "rendezvous/client/session_client.h"

namespace ddprun {

// From gRPC's threads to the agent's one: the only thing that they share.
class EventQueue {
 public:
  // Readable while there are events.
  int fd() const { return notice_.fd(); }

  void Post(SessionEvent event) ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      events_.push_back(std::move(event));
    }
    Wake();
  }

  // The agent's loop takes a turn.
  void Wake() { notice_.Notify(); }

  std::vector<SessionEvent> TakeAll() ABSL_LOCKS_EXCLUDED(mutex_) {
    notice_.Clear();
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(events_, {});
  }

 private:
  const EventFd notice_;
  std::mutex mutex_;
  std::vector<SessionEvent> events_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ddprun
