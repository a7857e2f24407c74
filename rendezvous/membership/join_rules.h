// SPDX-License-Identifier: Apache-2.0
// Who may join a run, and what people are told while it forms: the part of the membership core that
// makes sentences.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "rendezvous/membership/membership.h"

namespace ddprun {

// OK, or why this node cannot be in the run: INVALID_ARGUMENT (a field out of range),
// FAILED_PRECONDITION (another version, other rules than the run's, or the run is over),
// ALREADY_EXISTS (its node rank or id is taken), RESOURCE_EXHAUSTED (no more spares). Both sides of
// a disagreement are named. A rank whose holder is away is free for a newcomer.
absl::Status CheckJoin(const RunState& state, const Join& join);

// OK, or why a node whose stream broke cannot come back: ABORTED, it is a member no longer.
absl::Status CheckResume(const RunState& state, const Join& join);

RunRules RulesOf(const Join& first);

// How long the member may be silent before it is lost; 0: its stream's end is its own. One that is
// away and has no workers yet is not waited for as long as others: a run of such nodes would stay
// in the service for nobody.
std::chrono::milliseconds LeaseOf(const RunState& state, const Member& member);

// Until when a round that forms does, or waits before it does.
TimePoint FormingUntil(const RunState& state);

// "1 node", "2 nodes".
std::string Nodes(int count);

// What a node that waits is told: "waiting for 1 of 2 nodes: node rank 1 has not joined".
std::string WaitingWords(const RunState& state);

// Why a member is none any more, for the others and for itself.
std::string LostWords(const RunState& state, const Member& member);
absl::Status FencedForSilence(const RunState& state, const Member& member);
absl::Status FencedAsDead(const RunState& state, const Member& member, const std::string& reason);
absl::Status StoppedTooLate(const RunState& state, const Member& member);

// Why a round that did not fill up in time ends the run.
Failure JoinTimeoutFailure(const RunState& state);

}  // namespace ddprun
