// SPDX-License-Identifier: Apache-2.0
// The steps of a run's membership core as lines of text, from which ddpctl replay makes its state
// of any time: the journal's records (journal_records.h) in base64, after their number of
// characters. The first is a snapshot, and so is one in about kBytesBetweenSnapshots bytes: what
// was kept of a long run begins with the first snapshot in it. Pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/journal/journal_records.h"

namespace ddprun {

class StepLines {
 public:
  // Between two snapshots, or twice as many as the last one had.
  static constexpr std::size_t kBytesBetweenSnapshots = 256u << 10;
  // After a loss, as the snapshot of a large run costs more than its steps.
  static constexpr std::chrono::seconds kPauseAfterLoss{5};

  // The step's line, after the snapshot's where one is due; empty in a pause. `before`: the state
  // before the step.
  std::string Of(const RunState& before, const MembershipEvent& event, TimePoint now);
  // What was returned last did not arrive, or a part of it: after a pause the lines begin anew.
  void Lost();

 private:
  std::size_t left_ = 0;  // bytes until the next snapshot
  TimePoint last_{};
  std::optional<TimePoint> pause_end_;
};

// From the first snapshot on. Lines that are cut are left out; a snapshot follows them.
std::vector<JournalRecord> ParseSteps(const std::vector<std::string>& lines);

}  // namespace ddprun
