// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/election/held_copy.h"

#include <utility>

#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

RecordReader::OnRecord AddTo(std::vector<std::string>& list) {
  return [&list](absl::string_view record) {
    list.emplace_back(record);
    return absl::OkStatus();
  };
}

}  // namespace

void HeldCopy::OnConnection() {
  counts_ = is_heard_ = false;
  new_parts_.clear();
  part_reader_ = record_reader_ = RecordReader();
}

absl::StatusOr<std::optional<std::uint64_t>> HeldCopy::Add(const CopyMessage& message,
                                                           TimePoint now) {
  // The service that leads lived on, and may have given this copy up meanwhile: it waits for one
  // that says nothing for no longer.
  if (is_heard_ && now >= last_heard_ + kCopyTimeout) {
    return absl::DeadlineExceededError("this service did not run for a while");
  }
  is_heard_ = true;
  last_heard_ = now;
  std::optional<std::uint64_t> acknowledge;
  absl::Status status;
  switch (message.kind) {
    case CopyKind::kRecords:
      if (!message.value.empty()) status = record_reader_.Add(message.value, AddTo(records_));
      if (message.record > 0) acknowledge = message.record;
      break;
    case CopyKind::kParts:
      status = part_reader_.Add(message.value, AddTo(new_parts_));
      break;
    case CopyKind::kSnapshotEnd:
      parts_ = std::exchange(new_parts_, {});
      records_.clear();
      term_ = message.term;
      acknowledge = message.record;
      break;
    case CopyKind::kCounts:
      counts_ = true;
      break;
    case CopyKind::kLead:
      break;
  }
  if (!status.ok()) return status;
  return acknowledge;
}

absl::Status HeldCopy::Replay(const JournalReplay& replay) const {
  for (const std::string& part : parts_) {
    if (absl::Status status = replay.on_part(part); !status.ok()) return status;
  }
  for (const std::string& record : records_) {
    if (absl::Status status = replay.on_record(record); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace ddprun
