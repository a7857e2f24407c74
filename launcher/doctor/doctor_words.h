// SPDX-License-Identifier: Apache-2.0
// The messages between the nodes of `ddprun doctor`: JSON values in the run's store. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/doctor/doctor_rules.h"

namespace ddprun {

// At most kFactsBytesMax bytes: an environment that does not fit is omitted.
std::string Encode(const NodeFacts& facts);
std::string Encode(const std::vector<PairFacts>& pairs);

// INVALID_ARGUMENT: not valid; one sentence.
absl::StatusOr<NodeFacts> ParseNodeFacts(const std::string& words);
absl::StatusOr<std::vector<PairFacts>> ParsePairFacts(const std::string& words);

// The result, which node 0 sends to all nodes.
struct DoctorReport {
  int exit_code = 0;
  std::string text;
  std::string json;  // empty if too large to send: only node 0 then has it
};

// At most kReportBytesMax bytes: JSON that does not fit is omitted.
std::string Encode(const DoctorReport& report);
absl::StatusOr<DoctorReport> ParseDoctorReport(const std::string& words);

}  // namespace ddprun
