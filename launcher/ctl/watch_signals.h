// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "rendezvous/base/owned_fd.h"

namespace ddprun {

// Signals of commands that show something until they are ended: read from a file descriptor, so
// that the terminal is restored first. Made before the first thread, which would else take them.
class WatchSignals {
 public:
  enum class Action { kEnd, kResize, kSuspend };

  WatchSignals();
  int fd() const { return fd_.get(); }
  // The next one that has come.
  std::optional<Action> Take();

 private:
  OwnedFd fd_;
};

}  // namespace ddprun
