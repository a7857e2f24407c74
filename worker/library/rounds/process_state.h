// SPDX-License-Identifier: Apache-2.0
// What of a program that runs under Main() outlives its worlds.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "proto/progress_message.h"

namespace ddprun {

struct KeptState;  // core/kept_state.h

struct ProcessState {
  std::function<void(const ProgressMessage&)> report;  // WorldAccess::Report()
  std::shared_ptr<KeptState> kept;                     // null: this rank has no state
  int stopped_by = 0;   // the signal that has ended the training; 0: none has
  std::string unsaved;  // why the end of the training is not on the disk; empty: it is
};

}  // namespace ddprun
