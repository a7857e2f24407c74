// SPDX-License-Identifier: Apache-2.0
// What the faults of `ddpctl chaos` have cost. Pure.
//
// The time lost to a fault is the time from its injection until the run has made a whole new step:
// until a node reports that all of its workers are two steps further than they were at the fault. A
// step of data-parallel training needs all ranks, so all of them have made it. Steps that are made
// again since a checkpoint count as lost.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/chaos/chaos_plan.h"
#include "proto/rank_time.h"
#include "rendezvous/observe/run_status.h"

namespace ddprun {

// Where the run was: epochs are compared before steps.
struct ChaosStep {
  std::int64_t epoch = -1;
  std::int64_t step = -1;
  auto operator<=>(const ChaosStep&) const = default;
};

// The step of the node that is furthest; its workers' least step. Absent: no node has reported one.
std::optional<ChaosStep> FurthestStep(const RunStatus& status);

// Whether a run that was at `before` when a fault was injected, and is at `now`, has made a whole
// step since.
bool HasMadeNewStep(const ChaosStep& before, const ChaosStep& now);

struct InjectedFault {
  PlannedFault planned;
  double at = 0;               // seconds since the beginning
  bool done = false;           // it was carried out
  std::string words;           // what was done, or why it could not be
  std::optional<double> lost;  // seconds; absent: there was no new step
};

struct ChaosResult {
  std::string run_id;
  std::uint64_t seed = 0;
  double seconds = 0;
  std::string end;  // why it ended
  std::vector<InjectedFault> faults;
  RankTime before{};  // of the run, when chaos began and when it ended
  RankTime after{};
};

// "12.4 s  kill     rank 3 on b: training again after 0.18 s".
std::string FaultLine(const InjectedFault& fault);

std::string ChaosText(const ChaosResult& result);
// One object, with a line end.
std::string ChaosJson(const ChaosResult& result);

}  // namespace ddprun
