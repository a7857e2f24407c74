// SPDX-License-Identifier: Apache-2.0
// The record of a run's steps (step_lines.h), given to the membership core again: what happened,
// the state at any time, and the verdict. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/journal/journal_records.h"
#include "rendezvous/observe/run_status.h"

namespace ddprun {

struct ReplayLine {
  Duration at{};  // since the first record
  std::string text;
  std::vector<int> ranks;  // whom it concerns; none: the whole run, or a node in no round
  bool of_run = false;
};

struct Replayed {
  std::vector<ReplayLine> lines;
  RunStatus status;  // as it was at the end, or at `until`
  std::optional<Verdict> verdict;
  Duration length{};     // of what was replayed
  bool is_whole = true;  // it begins with the run: the record of a long one keeps its end
};

// `until`: since the first record; absent: to its end. DATA_LOSS: there is no record.
absl::StatusOr<Replayed> ReplaySteps(std::vector<JournalRecord> records,
                                     std::optional<Duration> until);

// One of VerdictJson()'s members that says what the run's nodes agreed on differs: "cause.rank is 3
// in the record and 1 in the replay". Empty: none does.
std::string WhereTheyPart(const nlohmann::ordered_json& recorded, const Verdict& replayed);

// Lines as "+12.345 s  round 1 begins: ..."; of `rank` alone those about its node and the run.
std::string LinesText(const std::vector<ReplayLine>& lines, std::optional<int> rank);

// The run as a scenario of the simulation (tests/simulation/README.md): its nodes, and what befell
// them. FAILED_PRECONDITION: the record does not begin with the run.
absl::StatusOr<std::string> ScenarioText(std::vector<JournalRecord> records);

}  // namespace ddprun
