// SPDX-License-Identifier: Apache-2.0
// The faults that `ddpctl chaos` can inject: what each does, to whom, and for how long. Pure.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

enum class FaultTargetKind { kRank, kNode, kService };

struct FaultInfo {
  FaultKind kind;
  const char* name;
  FaultTargetKind target;
  // 0: it does not last. Otherwise the agent undoes it after this time, and when the agent ends.
  std::chrono::milliseconds duration;
  bool by_default;   // without --kinds
  bool ends_round;   // always: a worker ends
  const char* what;  // for help texts
};

const std::vector<FaultInfo>& FaultTable();
const FaultInfo& InfoOf(FaultKind kind);
// For how long a fault lasts that `asked` time was asked for; 0: no time, or it does not last.
std::chrono::milliseconds DurationOf(FaultKind kind, std::chrono::milliseconds asked);

// "kill,stop", "default" or "all". INVALID_ARGUMENT: names the one that there is not.
absl::StatusOr<std::vector<FaultKind>> ParseFaultKinds(const std::string& list);

// One line for each kind, for --help.
std::string FaultsHelp();

}  // namespace ddprun
