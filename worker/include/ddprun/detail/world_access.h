// SPDX-License-Identifier: Apache-2.0
// What libddprun and `train` do with a World, and no other program.
#pragma once

#include <chrono>
#include <memory>

#include "ddprun/world.h"

namespace ddprun {

struct WorldAccess {
  // For what is left on the device when the world has ended.
  static constexpr std::chrono::seconds kAbortLimit{5};

  // Null where there is no Main().
  static const std::shared_ptr<ProcessState>& Process(const World& world) { return world.process_; }

  // 0, 1, ...: the same on all ranks if they call it in the same order, for keys of the store.
  static int NextNumber(World& world) { return world.next_number_++; }

  // Tells the launcher all else that a rank can tell, as World::Progress() its step.
  static void Report(const World& world, const ProgressMessage& message);

  // Instead of World::Shutdown(), when the interrupt was triggered: waits until nothing of this
  // world is left on the device. Throws std::runtime_error if that takes longer than kAbortLimit.
  static void AwaitAborted(World& world) { world.AwaitAborted(); }
};

}  // namespace ddprun
