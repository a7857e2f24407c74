// SPDX-License-Identifier: Apache-2.0
#include "ddprun/detail/interrupt.h"

#include <utility>

namespace ddprun {

Interrupt::Registration Interrupt::Register(std::function<void()> action) {
  const std::lock_guard lock(mutex_);
  if (triggered_) action();
  const auto place = actions_.insert(actions_.begin(), std::move(action));
  const auto remove = [self = shared_from_this(), place](void*) {
    Actions removed;  // destroyed without the lock: what it owns may hold a registration
    const std::lock_guard removing(self->mutex_);
    removed.splice(removed.end(), self->actions_, place);
  };
  return {static_cast<void*>(this), remove};
}

void Interrupt::Trigger() {
  const std::lock_guard lock(mutex_);
  if (triggered_.exchange(true)) return;
  for (const auto& action : actions_) action();
}

}  // namespace ddprun
