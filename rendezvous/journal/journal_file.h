// SPDX-License-Identifier: Apache-2.0
// One file in the format of journal_format.h, open for writing: the system calls, and what people
// are told when one fails. FileJournal decides what is written when. Not threadsafe, but for
// Sync().
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rendezvous/base/owned_fd.h"
#include "rendezvous/journal/journal.h"
#include "rendezvous/journal/journal_format.h"

namespace ddprun {

// A sentence about a system call that failed on `path`, with a code that fits `error_number`, and
// the next move where there is one.
absl::Status JournalError(absl::string_view what, const std::string& path, int error_number);

// The machine's present boot; 0: not known.
std::uint64_t BootNumber();

class JournalFile {
 public:
  // Makes the file, or empties it, and writes a snapshot to it.
  static absl::StatusOr<std::unique_ptr<JournalFile>> Create(const std::string& path,
                                                             const std::vector<std::string>& parts);

  // Replays what is there, cuts off an unfinished end, brings the rest to the disk and marks it so.
  // NOT_FOUND: no such file.
  static absl::StatusOr<std::unique_ptr<JournalFile>> Open(const std::string& path,
                                                           const JournalReplay& replay);

  // All of them or none: after a failure the file ends where it did before.
  absl::Status Write(const std::vector<std::string>& records);
  // Notes in the file that all before `offset` is on disk.
  absl::Status WriteMark(std::uint64_t offset);
  // To the disk. May run beside Write.
  absl::Status Sync() const;
  absl::Status RenameTo(const std::string& path);

  std::uint64_t end() const { return end_; }
  std::uint64_t snapshot_end() const { return snapshot_end_; }
  std::uint64_t bytes_cut() const { return bytes_cut_; }

 private:
  JournalFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  absl::Status WriteEntries(JournalEntry kind, const std::vector<std::string>& payloads);
  absl::Status WriteAt(std::uint64_t offset, absl::string_view bytes) const;

  std::string path_;
  const OwnedFd fd_;
  std::uint64_t salt_ = 0;
  std::uint64_t end_ = 0;
  std::uint64_t snapshot_end_ = 0;
  std::uint64_t bytes_cut_ = 0;
};

}  // namespace ddprun
