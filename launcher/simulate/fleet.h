// SPDX-License-Identifier: Apache-2.0
// How a run on many machines would spend its time: the membership core of rendezvous/ decides,
// nodes, their failures and the clock are simulated. Pure. The rendezvous service itself never
// fails here.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/base/limits.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

// What the time of the run's places is spent on. kTraining is that of proto/rank_time.h: steps that
// no earlier round had made.
enum class FleetTime {
  kTraining,
  kCheckpoint,
  kAgain,      // steps since the last checkpoint, made again
  kDetection,  // a machine is gone and the others wait for it
  kRestart,    // stopping, forming the next round, starting, loading
  kNoMachine,  // the place has none
  kEnded,      // the run ended before its time
  kStart,      // the first one
};
inline constexpr std::size_t kFleetTimes = 8;
// "made_again": as in JSON.
const char* NameOf(FleetTime kind);

struct FleetFailure {
  std::chrono::milliseconds at{0};
  bool of_process = false;  // else a machine is gone
};

// The defaults of costs were measured (tests/bench/RESULTS.md), with small models.
struct FleetPlan {
  int nodes = 0;
  int nodes_min = 0;  // 0: all
  int spares = 0;
  std::chrono::milliseconds duration{std::chrono::hours(7 * 24)};
  std::chrono::milliseconds node_mtbf{0};     // of one machine; 0: they never fail
  std::chrono::milliseconds process_mtbf{0};  // of all processes together; 0: likewise
  std::vector<FleetFailure> failures;         // at known times, beside these
  std::chrono::milliseconds repair{std::chrono::hours(1)};

  std::chrono::milliseconds checkpoint_every{0};
  std::chrono::milliseconds checkpoint_cost{93};
  std::chrono::milliseconds restart_cost{3400};  // from the last worker's end to the first step
  bool in_place = false;                         // workers are kept
  std::chrono::milliseconds in_place_cost{130};

  std::chrono::milliseconds lease{kLeaseDefault};
  std::chrono::milliseconds last_call{kLastCallDefault};
  std::chrono::milliseconds join_timeout{0};  // 0: as long as it takes
  int restarts_max = -1;                      // -1: any number
  RestartPolicy policy;
};

struct FleetRun {
  std::array<double, kFleetTimes> seconds{};  // of all places: nodes x duration
  int failures = 0;
  int restarts = 0;
  double longest_wait = 0;              // for machines, in seconds
  double goodput_at_best_interval = 0;  // had --checkpoint been BestCheckpointInterval()
  double ended_after = 0;               // in seconds, if `why_ended` is not empty
  std::string why_ended;

  double operator[](FleetTime kind) const { return seconds[static_cast<std::size_t>(kind)]; }
  double Share(FleetTime kind) const;
  double Goodput() const { return Share(FleetTime::kTraining); }
};

// The interval between checkpoints that costs least, to first order (Young 1974, Daly 2006): the
// root of 2 x cost x mean time between failures; at least a second.
std::chrono::milliseconds BestCheckpointInterval(const FleetPlan& plan);

// `plan` must have an interval between checkpoints. Equal seeds give each machine the same life in
// every plan, so that two plans can be compared.
FleetRun SimulateFleet(const FleetPlan& plan, std::uint64_t seed);

}  // namespace ddprun
