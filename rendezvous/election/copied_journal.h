// SPDX-License-Identifier: Apache-2.0
// The journal of a service that other services hold copies of, in their memory: it has no disk. A
// record is committed once all copies that count have it (copy_set.h); without a copy, at once.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "rendezvous/election/copy_set.h"
#include "rendezvous/journal/journal.h"

namespace ddprun {

class CopiedJournal final : public Journal {
 public:
  // What a copy's connection is told. Called without a lock of this journal's.
  struct Peer {
    std::string name;                   // for people
    std::function<void()> on_work;      // Take() has something
    std::function<void()> on_given_up;  // it is no longer one of the copies
  };

  // `is_empty`: it begins with the run's first record. `on_change`: called on any thread when the
  // copies that count have changed, with a sentence for people.
  CopiedJournal(bool is_empty, std::function<void(const std::string&)> on_change)
      : on_change_(std::move(on_change)), copies_(is_empty) {}

  std::uint64_t Append(std::string record) override;
  absl::Status Commit(std::uint64_t record) override;
  bool WantsSnapshot() override;
  void Snapshot(std::vector<std::string> parts) override;
  JournalReport Report() override;

  CopySet::CopyId Attach(Peer peer);
  void Detach(CopySet::CopyId copy);
  std::vector<CopyPiece> Take(CopySet::CopyId copy, std::size_t bytes_max);
  void Acknowledge(CopySet::CopyId copy, std::uint64_t record);

  // Commits nothing from now on.
  void Close(const absl::Status& why);
  // After Close(): tells a copy that has everything to lead. Returns its name once that is sent;
  // empty: there is none.
  std::string HandOver(std::chrono::milliseconds timeout);

 private:
  using Lock = std::unique_lock<std::mutex>;

  // The peers of copies that are gone; to be called without the lock.
  std::vector<Peer> GiveUpOverdue();
  std::vector<std::function<void()>> Work();
  void NoteChange(const std::vector<Peer>& given_up);

  const std::function<void(const std::string&)> on_change_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  CopySet copies_;
  std::map<CopySet::CopyId, Peer> peers_;
  std::size_t counting_ = 0;  // that was said last
  std::uint64_t snapshots_ = 0;
  absl::Status closed_;
};

}  // namespace ddprun
