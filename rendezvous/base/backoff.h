// SPDX-License-Identifier: Apache-2.0
// The pauses between attempts to reach something: each is twice as long as the one before.
#pragma once

#include <algorithm>
#include <chrono>

#include "rendezvous/base/limits.h"

namespace ddprun {

class Backoff {
 public:
  // The next pause. `longest`: of those that follow.
  std::chrono::milliseconds Next(std::chrono::milliseconds longest) {
    const auto pause = next_;
    next_ = std::min(2 * next_, longest);
    return pause;
  }

  // An attempt has succeeded.
  void Reset() { next_ = kConnectBackoffMin; }

 private:
  std::chrono::milliseconds next_ = kConnectBackoffMin;
};

}  // namespace ddprun
