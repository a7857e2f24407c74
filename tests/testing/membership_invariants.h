// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "rendezvous/membership/membership.h"

namespace ddprun {

// What must hold of every state of the membership core, and between the states before and after one
// step. INTERNAL with a sentence.
absl::Status CheckInvariants(const RunState& before, const RunState& after);

}  // namespace ddprun
