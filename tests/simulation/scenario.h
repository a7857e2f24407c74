// SPDX-License-Identifier: Apache-2.0
// A scenario as text: what happens when, one line each, readable without the code.
//
//   # Why this scenario is here.
//   nodes 4 restarts=2
//   at 1.5s  crash service
//   at 3s    start service
//   expect   phase=sealed reason="all nodes are there"
//
// A line is an optional time ("at", from the scenario's start; lines without one follow at once), a
// verb, words, and names with values. What verbs mean is not known here.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

struct ScenarioLine {
  std::string place;  // "file:line"
  std::optional<Duration> at;
  std::string verb;
  std::vector<std::string> words;
  std::map<std::string, std::string> values;

  // INVALID_ARGUMENT, each naming the place, if it is absent or not of that form.
  absl::StatusOr<std::string> Word(std::size_t index) const;
  absl::StatusOr<int> Number(const std::string& name) const;
  absl::StatusOr<Duration> Time(const std::string& name) const;
  absl::Status Wrong(absl::string_view what) const;
};

// "1.5s", "200ms", "2m", "1h", "30us". A number without a unit is an error.
absl::StatusOr<Duration> ParseSimDuration(absl::string_view text);

// INVALID_ARGUMENT names file and line.
absl::StatusOr<std::vector<ScenarioLine>> ParseScenario(const std::string& file,
                                                        absl::string_view text);

using ScenarioVerb = std::function<absl::Status(const ScenarioLine&)>;

// Lets time pass to each line's and does what it says. Ends with the first status that is not OK.
absl::Status RunScenario(const std::vector<ScenarioLine>& lines,
                         const std::function<absl::Status(Duration since_start)>& pass,
                         const std::map<std::string, ScenarioVerb>& verbs);

// The line as text that ParseScenario() reads as this line.
std::string ToText(const ScenarioLine& line);

}  // namespace ddprun
