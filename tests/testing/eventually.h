// SPDX-License-Identifier: Apache-2.0
// Waits for an event that nothing announces.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace ddprun {

// Generous: only a test that fails waits for it.
inline constexpr std::chrono::seconds kEventuallyDeadline{30};

// Waits for the event, not for a time. False: the deadline came first.
inline bool Eventually(const std::function<bool()>& happened) {
  const auto deadline = std::chrono::steady_clock::now() + kEventuallyDeadline;
  while (!happened()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace ddprun
