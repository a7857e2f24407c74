// SPDX-License-Identifier: Apache-2.0
// The journal as the runs of one service use it: their numbers, the clock, and the handling of a
// journal that cannot be written any more.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/journal/journal.h"
#include "rendezvous/journal/journal_records.h"
#include "rendezvous/journal/journal_replay.h"

namespace ddprun {

// Threadsafe.
class ServiceJournal {
 public:
  using What = decltype(JournalRecord::what);
  // Opens the service's journal and gives its contents to `replay`.
  using Open = std::function<absl::StatusOr<std::unique_ptr<Journal>>(const JournalReplay& replay)>;

  // Reads the journal of an earlier service; TakeRuns() returns its runs. `on_failure` is called
  // once, on any thread, when the journal cannot be written any more: nothing is sent to nodes from
  // then on, and the service must end.
  static absl::StatusOr<std::unique_ptr<ServiceJournal>> Start(
      const Open& open, std::function<void(absl::Status)> on_failure);

  std::map<std::uint64_t, ReplayedRun> TakeRuns() { return std::move(runs_); }

  std::uint64_t NewRun(const std::string& run_id);

  // Times of this process to the journal's, which the cores are stepped with, and back.
  TimePoint ToJournal(TimePoint steady) const { return clock_.ToJournal(steady); }
  TimePoint ToSteady(TimePoint journal) const { return clock_.ToSteady(journal); }

  // As Journal's. `now` is of the journal's clock.
  std::uint64_t Append(std::uint64_t run, TimePoint now, What what);
  // False: nothing may be sent.
  bool Commit(std::uint64_t record);
  bool WantsSnapshot() { return journal_->WantsSnapshot(); }
  void Snapshot(std::vector<std::string> parts) { journal_->Snapshot(std::move(parts)); }

 private:
  ServiceJournal(std::unique_ptr<Journal> journal, JournalReplayer replayer,
                 std::function<void(absl::Status)> on_failure);

  const std::unique_ptr<Journal> journal_;
  const JournalClock clock_;
  const std::function<void(absl::Status)> on_failure_;
  std::map<std::uint64_t, ReplayedRun> runs_;
  std::atomic<std::uint64_t> last_run_;
  std::atomic<bool> failed_ = false;
};

}  // namespace ddprun
