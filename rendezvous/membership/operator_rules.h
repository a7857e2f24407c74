// SPDX-License-Identifier: Apache-2.0
// An operator's requests to stop a run or to drain a node: what would happen, or why the request is
// refused. A part of the membership core.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "rendezvous/membership/membership.h"

namespace ddprun {

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

struct FaultRequest {
  std::string by;
  FaultKind kind = FaultKind::kUndo;
  int rank = -1;     // of the kinds that affect a worker
  std::string node;  // of those that affect a node: its node rank, host or node id
  std::chrono::milliseconds duration{0};
};

// NOT_FOUND: the run has no node of that rank, host or id.
absl::Status NoSuchNode(const RunState& state, const std::string& name);

// What happens, as a sentence. FAILED_PRECONDITION: the run is over already.
absl::StatusOr<std::string> PlanStop(const RunState& state, const StopRequest& request);

struct DrainPlan {
  NodeId node_id;
  std::string sentence;    // what happens
  bool has_spare = false;  // another node takes its place
};

// NOT_FOUND: no such node. INVALID_ARGUMENT: the name is ambiguous. FAILED_PRECONDITION: the run
// could not continue without it (with `force` it may have to wait for another node), or the node is
// leaving already.
absl::StatusOr<DrainPlan> PlanDrain(const RunState& state, const DrainRequest& request);

struct FaultTarget {
  NodeId node_id;
  LinkId link;
  int local_rank = -1;
};

// Which node is asked to inject the fault. NOT_FOUND: no such node or rank. FAILED_PRECONDITION:
// the worker does not run now, the node is away, or the run would end with it.
absl::StatusOr<FaultTarget> PlanFault(const RunState& state, const FaultRequest& request);

// Why a round ends, or a node leaves.
Failure StopFailure(const std::string& by, bool now);
// The cause for a node that is drained.
Failure DrainFailure(const Member& member);

}  // namespace ddprun
