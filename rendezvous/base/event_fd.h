// SPDX-License-Identifier: Apache-2.0
// Wakes a loop that waits for descriptors, from any thread. Threadsafe.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "rendezvous/base/owned_fd.h"

namespace ddprun {

class EventFd {
 public:
  EventFd() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

  // Readable from Notify() to Clear(). -1 if no descriptor was left.
  int fd() const { return fd_.get(); }

  void Notify() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t bytes = write(fd_.get(), &one, sizeof(one));
  }

  void Clear() const {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t bytes = read(fd_.get(), &count, sizeof(count));
  }

 private:
  OwnedFd fd_;
};

}  // namespace ddprun
