// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/etcd/etcd_log.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

std::string Number(std::uint64_t number) {
  return absl::StrCat(absl::Hex(number, absl::kZeroPad16));
}

// The end of a range of all keys that begin with `folder`, which ends with a slash.
std::string EndOf(const std::string& folder) {
  std::string end = folder;
  ++end.back();
  return end;
}

absl::Status Damaged(absl::string_view key, absl::string_view why) {
  return absl::DataLossError(absl::StrCat(
      "the journal in etcd is damaged, or of another version: the key ", key, " ", why,
      "; start the version of ddprun that wrote it, or name another prefix in --journal"));
}

}  // namespace

std::string EtcdLog::RecordKey(std::uint64_t number) const {
  return absl::StrCat(fence_.prefix, "/records/", Number(number));
}

std::string EtcdLog::PartsFolder(std::uint64_t snapshot) const {
  return absl::StrCat(fence_.prefix, "/snapshots/", Number(snapshot), "/");
}

absl::StatusOr<std::unique_ptr<EtcdLog>> EtcdLog::Open(EtcdStore& store, LeaderFence fence,
                                                       const JournalReplay& replay,
                                                       std::size_t value_bytes_max) {
  std::unique_ptr<EtcdLog> log(new EtcdLog(store, std::move(fence), value_bytes_max));
  absl::Status status = log->ReadSnapshotRow();
  if (status.ok() && log->snapshot_ != 0) {
    const std::string folder = log->PartsFolder(log->snapshot_);
    status = log->ReadRecords({folder, EndOf(folder)}, replay.on_part,
                              [](const EtcdEntry&) { return absl::OkStatus(); });
  }
  if (!status.ok()) return status;
  log->next_value_ = log->first_value_;
  const std::string folder = log->fence_.prefix + "/records/";
  status = log->ReadRecords({log->RecordKey(log->first_value_), EndOf(folder)}, replay.on_record,
                            [&](const EtcdEntry& entry) {
                              if (entry.key != log->RecordKey(log->next_value_))
                                return Damaged(log->RecordKey(log->next_value_), "is missing");
                              ++log->next_value_;
                              log->record_bytes_ += entry.value.size();
                              return absl::OkStatus();
                            });
  if (!status.ok()) return status;
  return log;
}

absl::Status EtcdLog::ReadSnapshotRow() {
  const std::string key = fence_.prefix + "/snapshot";
  const auto page = store_.Read({key, ""}, 1);
  if (!page.ok()) return page.status();
  if (page->entries.empty()) return absl::OkStatus();
  const std::vector<std::string> words = absl::StrSplit(page->entries.front().value, ' ');
  if (words.size() != 2 || !absl::SimpleHexAtoi(words[0], &snapshot_) ||
      !absl::SimpleHexAtoi(words[1], &first_value_)) {
    return Damaged(key, "names no snapshot");
  }
  return absl::OkStatus();
}

// Nobody writes meanwhile: this service leads.
absl::Status EtcdLog::ReadRecords(EtcdKeys keys, const RecordReader::OnRecord& on_record,
                                  const std::function<absl::Status(const EtcdEntry&)>& on_entry) {
  RecordReader reader;
  int limit = kEtcdPageValues;
  while (true) {
    const auto page = store_.Read(keys, limit);
    // Large values: all of them are more than a message may have.
    if (absl::IsResourceExhausted(page.status()) && limit > 1) {
      limit /= 2;
      continue;
    }
    if (!page.ok()) return page.status();
    for (const EtcdEntry& entry : page->entries) {
      absl::Status status = on_entry(entry);
      if (!status.ok()) return status;
      bytes_ += entry.value.size();
      bool is_taken = true;
      status = reader.Add(entry.value, [&](absl::string_view record) {
        absl::Status taken = on_record(record);
        is_taken = taken.ok();
        return taken;
      });
      if (!status.ok()) return is_taken ? Damaged(entry.key, status.message()) : status;
    }
    if (!page->more || page->entries.empty()) return absl::OkStatus();
    keys.from = page->entries.back().key + '\0';
  }
}

absl::Status EtcdLog::Write(const std::vector<std::string>& records) {
  for (std::string& value : CutIntoValues(records, value_bytes_max_)) {
    const std::string key = RecordKey(next_value_);
    const std::size_t bytes = value.size();
    EtcdTransaction transaction;
    transaction.puts.push_back({key, std::move(value)});
    absl::Status status = WriteAsLeader(store_, fence_, std::move(transaction), key);
    if (!status.ok()) return status;
    ++next_value_;
    bytes_ += bytes;
    record_bytes_ += bytes;
  }
  return absl::OkStatus();
}

absl::Status EtcdLog::BeginSnapshot() {
  new_snapshot_ = std::max(new_snapshot_, snapshot_) + 1;
  new_first_value_ = next_value_;
  new_parts_ = 0;
  new_bytes_ = 0;
  bytes_before_ = record_bytes_;
  // Left over from a service that did not finish it.
  const std::string folder = PartsFolder(new_snapshot_);
  return Delete({folder, EndOf(folder)});
}

absl::Status EtcdLog::AddPart(const std::string& part) {
  for (std::string& value : CutIntoValues({part}, value_bytes_max_)) {
    const std::string key = PartsFolder(new_snapshot_) + Number(++new_parts_);
    new_bytes_ += value.size();
    EtcdTransaction transaction;
    transaction.puts.push_back({key, std::move(value)});
    absl::Status status = WriteAsLeader(store_, fence_, std::move(transaction), key);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status EtcdLog::SetSnapshot() {
  EtcdTransaction transaction;
  transaction.puts.push_back({fence_.prefix + "/snapshot",
                              absl::StrCat(Number(new_snapshot_), " ", Number(new_first_value_))});
  absl::Status status = RepeatAsLeader(store_, fence_, std::move(transaction));
  if (!status.ok()) return status;
  snapshot_ = new_snapshot_;
  first_value_ = new_first_value_;
  record_bytes_ -= bytes_before_;
  bytes_ = new_bytes_ + record_bytes_;
  return absl::OkStatus();
}

absl::Status EtcdLog::DeleteOld() {
  absl::Status status = Delete({fence_.prefix + "/records/", RecordKey(first_value_)});
  if (status.ok()) status = Delete({fence_.prefix + "/snapshots/", PartsFolder(snapshot_)});
  return status;
}

absl::Status EtcdLog::Delete(const EtcdKeys& keys) {
  EtcdTransaction transaction;
  transaction.deletions.push_back(keys);
  return RepeatAsLeader(store_, fence_, std::move(transaction));
}

}  // namespace ddprun
