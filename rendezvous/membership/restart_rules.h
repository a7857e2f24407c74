// SPDX-License-Identifier: Apache-2.0
// What restart_policy.h decides, for a run and its nodes: whether another round follows, and what a
// node is told that is left out. Pure, a part of the membership core.
#pragma once

#include <optional>
#include <string>

#include "rendezvous/membership/membership.h"

namespace ddprun {

// Of a broken run. Absent: another round follows once all workers are stopped. Otherwise why not;
// no words where the cause and the number of restarts say it all.
std::optional<std::string> WhyNoNextRound(const RunState& state);

// Of all restarts, those that count no more.
int RestartsForgiven(const RunState& state, TimePoint now);

// Absent: nothing is held against the node's host.
std::optional<Refused> RefusalOfLeftOut(const RunState& state, const Join& join, TimePoint now);

}  // namespace ddprun
