// SPDX-License-Identifier: Apache-2.0
// restart_policy.h applied to a run and its nodes: whether another round follows, and the refusal
// of a node that is left out. Pure, a part of the membership core.
#pragma once

#include <optional>
#include <string>

#include "rendezvous/membership/membership.h"

namespace ddprun {

// For a broken run. Absent: another round follows once all workers are stopped. Otherwise the
// reason; empty where the cause and the number of restarts explain it.
std::optional<std::string> WhyNoNextRound(const RunState& state);

// Restarts that no longer count.
int RestartsForgiven(const RunState& state, TimePoint now);

// Absent: the node's host is not left out.
std::optional<Refused> RefusalOfLeftOut(const RunState& state, const Join& join, TimePoint now);

}  // namespace ddprun
