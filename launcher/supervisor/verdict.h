// SPDX-License-Identifier: Apache-2.0
// What a person reads when a run fails: one screen, the same on every node.
#pragma once

#include <string>

#include "proto/failure_record.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

// kOmit: the console has just shown the failed rank's message.
enum class FailureMessage { kInclude, kOmit };

// Empty for a success; lines with their line ends otherwise.
std::string VerdictText(const Verdict& verdict, FailureMessage message = FailureMessage::kInclude);

// The same screen where the service is gone and only this node's own failure is known.
std::string LocalFailureText(const Failure& failure, const std::string& why_local_only);

// The failure as a worker's own record has it, with torchrun's error code.
FailureRecord RecordOf(const Failure& failure);

}  // namespace ddprun
