// SPDX-License-Identifier: Apache-2.0
// The journal's keys in etcd, written and read by the service that leads:
//
//   PREFIX/records/NUMBER           records, in the order of the numbers (16 hexadecimal digits)
//   PREFIX/snapshot                 "NUMBER FIRST": the snapshot, and the first records after it
//   PREFIX/snapshots/NUMBER/NUMBER  its parts
//
// Values have at most kEtcdValueBytesMax (journal/record_values.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/etcd/etcd_store.h"
#include "rendezvous/etcd/leader_key.h"
#include "rendezvous/journal/journal.h"
#include "rendezvous/journal/record_values.h"

namespace ddprun {

// Used by one thread at a time. Errors: EtcdStore's, and FAILED_PRECONDITION: another service
// leads.
class EtcdLog {
 public:
  // Reads what is there. DATA_LOSS: it is damaged, or of another version; the message has the next
  // move. Or what a callback of `replay` returned.
  static absl::StatusOr<std::unique_ptr<EtcdLog>> Open(
      EtcdStore& store, LeaderFence fence, const JournalReplay& replay,
      std::size_t value_bytes_max = kEtcdValueBytesMax);

  // Returns once all of them are in etcd. After an error some of them may be.
  absl::Status Write(const std::vector<std::string>& records);

  // A snapshot: BeginSnapshot(), then AddPart() for each part with other records between, then
  // SetSnapshot(). The records that were written before BeginSnapshot() are in it.
  absl::Status BeginSnapshot();
  absl::Status AddPart(const std::string& part);
  absl::Status SetSnapshot();
  // Deletes what the last snapshot has replaced.
  absl::Status DeleteOld();

  // What a restart reads.
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t values() const { return next_value_ - first_value_; }

 private:
  EtcdLog(EtcdStore& store, LeaderFence fence, std::size_t value_bytes_max)
      : store_(store), fence_(std::move(fence)), value_bytes_max_(value_bytes_max) {}

  std::string RecordKey(std::uint64_t number) const;
  std::string PartsFolder(std::uint64_t snapshot) const;
  absl::Status ReadSnapshotRow();
  // Gives each record of the keys to `on_record`, and each key's entry to `on_entry`.
  absl::Status ReadRecords(EtcdKeys keys, const RecordReader::OnRecord& on_record,
                           const std::function<absl::Status(const EtcdEntry&)>& on_entry);
  absl::Status Delete(const EtcdKeys& keys);

  EtcdStore& store_;
  const LeaderFence fence_;
  const std::size_t value_bytes_max_;
  std::uint64_t first_value_ = 1;  // after the snapshot
  std::uint64_t next_value_ = 1;
  std::uint64_t snapshot_ = 0;  // its number; 0: none
  std::uint64_t bytes_ = 0;
  std::uint64_t record_bytes_ = 0;  // of them, of records

  // Of the snapshot that is being written. Its number was never used by this service: the answer
  // that an earlier one is in place may have been lost.
  std::uint64_t new_snapshot_ = 0;
  std::uint64_t new_first_value_ = 0;
  std::uint64_t new_parts_ = 0;
  std::uint64_t new_bytes_ = 0;
  std::uint64_t bytes_before_ = 0;
};

}  // namespace ddprun
