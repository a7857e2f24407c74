// SPDX-License-Identifier: Apache-2.0
// Which fault comes next, and where. Pure: the same seed and the same statuses give the same
// faults.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/chaos/fault_table.h"
#include "rendezvous/base/random.h"
#include "rendezvous/observe/run_status.h"

namespace ddprun {

struct PlannedFault {
  FaultKind kind = FaultKind::kKill;
  int rank = -1;        // of the kinds that affect a worker
  std::string node_id;  // of all kinds but those that affect the service
  std::string host;     // likewise
  std::chrono::milliseconds duration{0};
};

// "rank 3 on b", "node 1 (b)", "the service".
std::string TargetName(const PlannedFault& fault);

class ChaosPlan {
 public:
  // `duration`: of the kinds that last; 0: each kind's own.
  ChaosPlan(std::uint64_t seed, std::vector<FaultKind> kinds, std::chrono::milliseconds duration)
      : random_(seed), kinds_(std::move(kinds)), duration_(duration) {}

  // Each kind comes once before any comes again. Only workers and nodes that run are chosen, and
  // none whose last fault still lasts. Absent: there is no target for the next kind now.
  std::optional<PlannedFault> Next(const RunStatus& status, TimePoint now);

 private:
  std::vector<PlannedFault> Targets(FaultKind kind, const RunStatus& status, TimePoint now) const;
  bool IsBusy(const std::string& name, TimePoint now) const;

  SplitMix64 random_;
  const std::vector<FaultKind> kinds_;
  const std::chrono::milliseconds duration_;
  std::vector<FaultKind> deck_;            // the kinds that are left of this turn
  std::map<std::string, TimePoint> busy_;  // by TargetName(): until then
};

}  // namespace ddprun
