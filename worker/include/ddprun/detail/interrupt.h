// SPDX-License-Identifier: Apache-2.0
// Ends all waits of a round that is over. Whatever can wait for another rank registers how that
// wait is ended from another thread.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>

#include "ddprun/errors.h"

namespace ddprun {

class Interrupt : public std::enable_shared_from_this<Interrupt> {
 public:
  using Registration = std::shared_ptr<void>;

  // `action` runs when the interrupt is triggered, or at once if it was; the latest runs first, as
  // it may need what was there before it. It must not block and must not use this object.
  // Destroying the registration removes the action, and waits while it runs.
  [[nodiscard]] Registration Register(std::function<void()> action);

  // From any thread; the first call runs the actions.
  void Trigger();

  bool triggered() const { return triggered_; }
  // Throws RoundOver if it was triggered.
  void Check() const {
    if (triggered_) throw RoundOver();
  }

 private:
  using Actions = std::list<std::function<void()>>;

  std::mutex mutex_;
  Actions actions_;
  std::atomic<bool> triggered_ = false;
};

}  // namespace ddprun
