// SPDX-License-Identifier: Apache-2.0
// Rebuilds runs from a journal's records: each record is given to the core that it came from.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/version.h"
#include "rendezvous/journal/journal_records.h"
#include "rendezvous/membership/membership.h"
#include "rendezvous/store/store_hub.h"

namespace ddprun {

// A run as it was at the last record.
struct ReplayedRun {
  explicit ReplayedRun(RunState state) : membership(std::move(state)), store(membership.round) {}

  RunState membership;
  StoreHub store;
  std::uint64_t last_link = 0;  // the highest that was used
  // What its nodes spoke when they were accepted; 0: not known yet.
  unsigned protocol_version = kProtocolVersion;
};

class JournalReplayer {
 public:
  // Called after each step of a run's core.
  using OnStep = std::function<void(const RunState& after, const MembershipEvent& event,
                                    TimePoint now, const std::vector<MembershipEffect>& effects)>;
  explicit JournalReplayer(OnStep on_step = nullptr) : on_step_(std::move(on_step)) {}

  // A record, or a part of a snapshot, in the journal's order. DATA_LOSS as DecodeJournalRecord().
  absl::Status Apply(absl::string_view bytes);
  absl::Status Apply(JournalRecord record);

  // By the run's number in the journal.
  std::map<std::uint64_t, ReplayedRun> TakeRuns() { return std::move(runs_); }
  // The highest number of a run, and the latest time, in the journal.
  std::uint64_t last_run() const { return last_run_; }
  TimePoint last() const { return last_; }

 private:
  void Step(MembershipEvent& event, TimePoint now, ReplayedRun& run) const;

  OnStep on_step_;
  std::map<std::uint64_t, ReplayedRun> runs_;
  std::uint64_t last_run_ = 0;
  TimePoint last_{};
};

// The records that make the run: parts of a snapshot, and the shortest history that leads there.
// `now` is of the journal's clock.
void AddSnapshotParts(std::uint64_t number, TimePoint now, std::uint64_t last_link,
                      const RunState& membership, StoreHub& store, std::vector<std::string>& parts);

}  // namespace ddprun
