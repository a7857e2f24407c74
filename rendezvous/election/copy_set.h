// SPDX-License-Identifier: Apache-2.0
// What a service that leads knows of the copies of its journal: what each is still to be sent, what
// it has, and which records are therefore safe. A pure core (copied_journal.h has the lock).
//
// A copy counts once it has a snapshot: from then on no record is safe before it has it. It is told
// so in the order of the records: what was safe before then precedes it. One that counts and takes
// nothing for kCopyTimeout is given up, so that a hung machine stops the run for no longer; it
// begins again with a snapshot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/limits.h"

namespace ddprun {

// What a copy is sent, as JournalCopy of proto/ddprun.proto.
enum class CopyKind { kRecords, kParts, kSnapshotEnd, kCounts, kLead };

// To be sent to a copy, in order.
struct CopyPiece {
  CopyKind kind = CopyKind::kRecords;
  std::shared_ptr<const std::string> bytes;  // of a record or a part
  std::uint64_t record = 0;  // the last one that the copy has with this piece; 0: none is whole
};

class CopySet {
 public:
  using CopyId = std::uint64_t;

  // `is_empty`: nothing was recorded before the first record that is appended here.
  explicit CopySet(bool is_empty, std::size_t segment_bytes_max = kJournalSegmentBytesMax)
      : is_empty_(is_empty), segment_bytes_max_(segment_bytes_max) {}

  // Returns the record's number; from 1.
  std::uint64_t Append(std::string record, TimePoint now);
  // All records up to that one are in each copy that counts.
  std::uint64_t safe_record() const;
  std::uint64_t last_record() const { return last_record_; }

  bool WantsSnapshot() const;
  // Of the state after all records so far.
  void Snapshot(std::vector<std::string> parts);

  CopyId Add();
  void Remove(CopyId copy) { copies_.erase(copy); }
  bool Has(CopyId copy) const { return copies_.count(copy) > 0; }
  // Pieces that wait to be taken; 0 also if there is no such copy.
  std::size_t unsent(CopyId copy) const;
  // Pieces of one kind, at least one if there is any, and about so many bytes.
  std::vector<CopyPiece> Take(CopyId copy, std::size_t bytes_max);
  // The copy has all up to that record.
  void Acknowledge(CopyId copy, std::uint64_t record, TimePoint now);
  // Removes and returns the copies that take nothing, or too slowly.
  std::vector<CopyId> GiveUpOverdue(TimePoint now);
  // When GiveUpOverdue() may give one up.
  std::optional<TimePoint> NextDeadline() const;

  // How many count.
  std::size_t counting() const;
  // Of those that count and have all, the first; its next piece is that it leads.
  std::optional<CopyId> HandOver();

 private:
  struct Copy {
    std::deque<CopyPiece> unsent;
    std::size_t unsent_bytes = 0;
    bool has_begun = false;  // a snapshot was queued, and all records since
    bool counts = false;
    std::uint64_t acknowledged = 0;
    std::optional<TimePoint> behind_since;  // it counts, and lacks records; since it took the last
  };

  void Push(Copy& copy, CopyPiece piece);
  void PushSnapshot(Copy& copy, const std::vector<std::shared_ptr<const std::string>>& parts);

  const bool is_empty_;
  const std::size_t segment_bytes_max_;
  std::uint64_t last_record_ = 0;
  std::size_t segment_bytes_ = 0;  // of the records since the last snapshot
  CopyId last_copy_ = 0;
  std::map<CopyId, Copy> copies_;
};

}  // namespace ddprun
