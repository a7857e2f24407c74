// SPDX-License-Identifier: Apache-2.0
// What the service believes of a member's reports. A member speaks for its own workers alone: who
// it is, which ranks it has and whether the run may go on are the service's own knowledge and are
// filled in from there, whatever the message says.
#pragma once

#include <vector>

#include "rendezvous/membership/membership.h"

namespace ddprun {

// A worker's failure as `member` may report it: of one of its own ranks, on its own host, of a kind
// that workers have, with an exit code of 1 to 255 or a signal that exists.
Failure WorkerFailureFrom(const Member& member, Failure reported);

// Why `member` leaves, as far as it may say so itself.
Failure LeaveReasonFrom(const Member& member, Failure reported);

// How its workers ended: each of them once, in ways that a node can know of.
std::vector<WorkerEnds> WorkerEndsFrom(const Member& member,
                                       const std::vector<WorkerEnds>& reported);

}  // namespace ddprun
