// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/eventfd.h>

#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "rendezvous/base/owned_fd.h"
#include "rendezvous/client/session_client.h"

namespace ddprun {

// From gRPC's threads to the agent's one: the only thing that they share.
class EventQueue {
 public:
  EventQueue() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

  // Readable while there are events.
  int fd() const { return fd_.get(); }

  void Post(SessionEvent event) ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      events_.push_back(std::move(event));
    }
    Wake();
  }

  // The agent's loop takes a turn.
  void Wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(fd_.get(), &one, sizeof(one));
  }

  std::vector<SessionEvent> TakeAll() ABSL_LOCKS_EXCLUDED(mutex_) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t count_bytes = read(fd_.get(), &count, sizeof(count));
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(events_, {});
  }

 private:
  const OwnedFd fd_;
  std::mutex mutex_;
  std::vector<SessionEvent> events_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ddprun
