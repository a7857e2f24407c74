// SPDX-License-Identifier: Apache-2.0
// The verdict of a run: one screen for users, the same on every node, and JSON for programs. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proto/failure_record.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

// kOmit: the console has just shown the failed rank's message.
enum class FailureMessage { kInclude, kOmit };

// Empty on success, else complete lines.
std::string VerdictText(const Verdict& verdict, FailureMessage message = FailureMessage::kInclude);

// Where ranks wait for each other, as a line of it. Empty: none does.
std::string CollectivesText(const std::vector<RanksInPlace>& places);

// The verdict if the service is lost and only this node's own failure is known.
std::string LocalFailureText(const Failure& failure, const std::string& why_local_only);

// The failure in the format of a worker's failure record, with torchrun's error code.
FailureRecord RecordOf(const Failure& failure);

struct RunEnd {
  std::string run_id;  // empty: it had none yet
  std::string host;    // of this ddprun
  int exit_code = 0;   // of this ddprun
  std::string text;    // the text for users; empty on success
  std::optional<Verdict> verdict;
};

// One object in one line, without its line end. VERDICT.md documents its members; members are only
// added, never removed.
std::string VerdictJson(const RunEnd& end);

}  // namespace ddprun
