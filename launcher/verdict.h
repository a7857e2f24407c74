// SPDX-License-Identifier: Apache-2.0
// What a person reads when a run fails: one screen, the same on every node.
#pragma once

#include <string>

#include "proto/failure_record.h"
#include "rendezvous/session_types.h"

namespace ddprun {

enum class Words { kShown, kJustRead };

// Empty for a success; lines with their line ends otherwise. kJustRead leaves out what the rank
// that failed has said: the lines before the verdict are that.
std::string VerdictText(const Verdict& verdict, Words words = Words::kShown);

// The same screen where the service is gone and only this node's own failure is known.
std::string LocalFailureText(const Failure& failure, const std::string& why_local_only);

// The failure as a worker's own record has it, with torchrun's error code.
FailureRecord RecordOf(const Failure& failure);

}  // namespace ddprun
