// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/journal/service_journal.h"

#include <chrono>
#include <utility>

namespace ddprun {
namespace {

// The cores use the clock's zero for "not yet".
TimePoint StartOf(TimePoint last) {
  return last > TimePoint{} ? last : TimePoint{std::chrono::hours(1)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServiceJournal>> ServiceJournal::Start(
    const Open& open, std::function<void(absl::Status)> on_failure) {
  JournalReplayer replayer;
  const auto apply = [&](absl::string_view bytes) { return replayer.Apply(bytes); };
  auto journal = open({.on_part = apply, .on_record = apply});
  if (!journal.ok()) return journal.status();
  return std::unique_ptr<ServiceJournal>(
      new ServiceJournal(*std::move(journal), std::move(replayer), std::move(on_failure)));
}

ServiceJournal::ServiceJournal(std::unique_ptr<Journal> journal, JournalReplayer replayer,
                               std::function<void(absl::Status)> on_failure)
    : journal_(std::move(journal)),
      clock_(StartOf(replayer.last()), std::chrono::steady_clock::now()),
      on_failure_(std::move(on_failure)),
      runs_(replayer.TakeRuns()),
      last_run_(replayer.last_run()) {}

std::uint64_t ServiceJournal::NewRun(const std::string& run_id) {
  const std::uint64_t run = ++last_run_;
  Append(run, ToJournal(std::chrono::steady_clock::now()), RunOpened{run_id});
  return run;
}

std::uint64_t ServiceJournal::Append(std::uint64_t run, TimePoint now, What what) {
  return journal_->Append(EncodeJournalRecord({run, now, std::move(what)}));
}

bool ServiceJournal::Commit(std::uint64_t record) {
  absl::Status status = journal_->Commit(record);
  if (status.ok()) return true;
  if (!failed_.exchange(true)) on_failure_(std::move(status));
  return false;
}

}  // namespace ddprun
