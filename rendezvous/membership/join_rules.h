// SPDX-License-Identifier: Apache-2.0
// Which nodes may join a run, and the sentences about a run that forms: a part of the membership
// core.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "rendezvous/membership/membership.h"

namespace ddprun {

// ---- Hosts of equal names, as machines cloned from one image and many containers have them

// What the run calls the host of that node: "ubuntu", or "ubuntu at 10.0.0.2" where another host of
// the run has the name already. A host is the one that had the name before if it has the same
// address, or the same addresses of all interfaces.
std::string HostNameInRun(const RunState& state, const Join& join);

// A node of this host, whose name is that of HostNameInRun(), has joined.
void RememberHost(RunState& state, const Join& join);

// ---- Who may join

// OK, or why this node cannot be in the run: INVALID_ARGUMENT (a field out of range),
// FAILED_PRECONDITION (another version, other rules than the run's, or the run is over),
// ALREADY_EXISTS (its node rank or id is taken), RESOURCE_EXHAUSTED (no more spares). Both sides of
// a disagreement are named. A rank whose holder is away is free for a newcomer.
absl::Status CheckJoin(const RunState& state, const Join& join);

// OK, or ABORTED: a node whose stream broke cannot reconnect, since it is no longer a member.
absl::Status CheckResume(const RunState& state, const Join& join);

// How long the member may be silent before it is lost; 0: it is lost when its stream ends. A member
// that is away and has no workers yet gets a shorter lease: a run of such nodes would occupy the
// service for nothing.
std::chrono::milliseconds LeaseOf(const RunState& state, const Member& member);

// When the forming of the round ends, or the delay before it.
TimePoint FormingUntil(const RunState& state);

// "1 node", "2 nodes".
std::string Nodes(int count);
// "b (node rank 1)", or "b" of a node without a rank.
std::string NodeName(const std::string& host, std::optional<int> node_rank);

// The status sentence of a waiting node: "waiting for 1 of 2 nodes: node rank 1 has not joined".
std::string WaitingWords(const RunState& state);

// Why a member was removed, for the others and for itself.
std::string LostWords(const RunState& state, const Member& member);
// The same where the service was suspended for too long; `is_hosted`: of the node that hosts it.
std::string SuspendedWords(const RunState& state, const Member& member, bool is_hosted);
absl::Status FencedForSilence(const RunState& state, const Member& member);
absl::Status FencedAsDead(const RunState& state, const Member& member, const std::string& reason);
absl::Status StoppedTooLate(const RunState& state, const Member& member);

// Why a round that did not fill up in time ends the run.
Failure JoinTimeoutFailure(const RunState& state);

}  // namespace ddprun
