// SPDX-License-Identifier: Apache-2.0
// The copy of a journal in the memory of a service that stands by. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/election/copy_set.h"
#include "rendezvous/journal/journal.h"
#include "rendezvous/journal/record_values.h"

namespace ddprun {

// One message of the service that leads, as JournalCopy of proto/ddprun.proto.
struct CopyMessage {
  CopyKind kind = CopyKind::kRecords;
  std::string value;
  std::uint64_t record = 0;
  std::uint64_t term = 0;
};

class HeldCopy {
 public:
  // What comes next is of another connection to a service that leads, which may have gone on
  // without this copy: a snapshot first. Until that is whole, the old copy stays.
  void OnConnection();
  // Returns the record that is to be acknowledged, if any. DATA_LOSS: the message is not
  // understood.
  absl::StatusOr<std::optional<std::uint64_t>> Add(const CopyMessage& message, TimePoint now);
  // The service that leads has ended the connection itself: it goes on without this copy.
  void GivenUp() { counts_ = false; }

  // Of the service whose journal this is; 0: there is no copy.
  std::uint64_t term() const { return term_; }
  // It has all that was ever acknowledged, as far as can be known here.
  bool counts() const { return counts_; }
  // The last message of the service that leads.
  TimePoint last_heard() const { return last_heard_; }
  std::size_t records() const { return parts_.size() + records_.size(); }

  // Gives all of it to `replay`.
  absl::Status Replay(const JournalReplay& replay) const;

 private:
  std::uint64_t term_ = 0;
  bool counts_ = false;
  bool is_heard_ = false;  // on this connection
  TimePoint last_heard_{};
  std::vector<std::string> parts_;
  std::vector<std::string> records_;  // after them
  std::vector<std::string> new_parts_;
  RecordReader part_reader_;
  RecordReader record_reader_;
};

}  // namespace ddprun
