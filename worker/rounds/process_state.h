// SPDX-License-Identifier: Apache-2.0
// What of a program that runs under Main() outlives its worlds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

namespace ddprun {

struct KeptState;  // library/kept_state.h

struct ProcessState {
  // World::Progress().
  std::function<void(std::int64_t step, std::optional<std::int64_t> epoch)> progress;
  std::shared_ptr<KeptState> kept;  // null: this rank has no state
  int stopped_by = 0;               // the signal that has ended the training; 0: none has
};

}  // namespace ddprun
