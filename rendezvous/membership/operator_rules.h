// SPDX-License-Identifier: Apache-2.0
// What becomes of a run when somebody asks for its end, or for a node to leave: the part of the
// membership core that says beforehand what would happen, and refuses what cannot be done.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "rendezvous/membership/membership.h"

namespace ddprun {

// What is asked of a run, as plain values.
struct StopRequest {
  std::string by;  // a host
  bool now = false;
};

struct DrainRequest {
  std::string by;
  std::string node;  // its node rank, host or node id
  bool force = false;
  bool at_next_round = false;
  bool dry_run = false;
};

// The sentence for who asked. FAILED_PRECONDITION: the run is over already.
absl::StatusOr<std::string> PlanStop(const RunState& state, const StopRequest& request);

struct DrainPlan {
  NodeId node_id;
  std::string sentence;  // what happens, in words
};

// NOT_FOUND: no such node. INVALID_ARGUMENT: several are meant. FAILED_PRECONDITION: the run could
// not go on without it (with `force` it may have to wait for another one), or the node leaves
// already.
absl::StatusOr<DrainPlan> PlanDrain(const RunState& state, const DrainRequest& request);

// Why a round ends, or a node leaves.
Failure StopFailure(const std::string& by, bool now);
Failure DrainFailure(const Member& member, const std::string& by);

}  // namespace ddprun
