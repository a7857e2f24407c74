// SPDX-License-Identifier: Apache-2.0
// What the service accepts from a member's reports. A member reports only about its own workers:
// its identity, its ranks and whether the run may continue are the service's own knowledge and are
// filled in from there, whatever the message says.
#pragma once

#include <vector>

#include "rendezvous/membership/membership.h"

namespace ddprun {

// A worker's failure, limited to what `member` may report: one of its own ranks, its own host, a
// kind that workers have, an exit code of 1 to 255 or an existing signal.
Failure WorkerFailureFrom(const Member& member, Failure reported);

// Why `member` leaves, limited to what it may report.
Failure LeaveReasonFrom(const Member& member, Failure reported);

// How its workers ended: each of them once, in ways that a node can observe.
std::vector<WorkerEnds> WorkerEndsFrom(const Member& member,
                                       const std::vector<WorkerEnds>& reported);

}  // namespace ddprun
