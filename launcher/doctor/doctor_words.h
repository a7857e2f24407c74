// SPDX-License-Identifier: Apache-2.0
// The messages between the nodes of `ddprun doctor`: JSON objects, values in the run's store. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/doctor/doctor_rules.h"

namespace ddprun {

// At most kFactsBytesMax: an environment that does not fit is left out.
std::string Encode(const NodeFacts& facts);
std::string Encode(const std::vector<PairFacts>& pairs);

// INVALID_ARGUMENT: not such a message; one sentence.
absl::StatusOr<NodeFacts> ParseNodeFacts(const std::string& words);
absl::StatusOr<std::vector<PairFacts>> ParsePairFacts(const std::string& words);

// What node 0 reports for all.
struct DoctorReport {
  int exit_code = 0;
  std::string text;
  std::string json;  // of thousands of nodes: node 0 alone has it
};

// At most kReportBytesMax: JSON that does not fit is left out.
std::string Encode(const DoctorReport& report);
absl::StatusOr<DoctorReport> ParseDoctorReport(const std::string& words);

}  // namespace ddprun
