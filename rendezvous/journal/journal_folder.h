// SPDX-License-Identifier: Apache-2.0
// The folder of a journal: accessible to its owner only, locked by the service that uses it; and
// the number of the last record that is known to be on the disk.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {

// The error of a system call on `path`, as a sentence with the next move, and with the code for
// `error_number`.
absl::Status JournalError(absl::string_view what, const std::string& path, int error_number);

class JournalFolder {
 public:
  // Makes the folder if it does not exist (not its parent) and locks it. ALREADY_EXISTS: another
  // service holds the lock.
  static absl::StatusOr<JournalFolder> Open(const std::string& path);

  const std::string& path() const { return path_; }
  std::string PathOf(absl::string_view name) const;

  // Flushes the folder's entries: the names of the files in it.
  absl::Status Sync() const;

  // The number of the last record that was flushed to the disk, as far as an earlier service noted
  // it. Not flushed itself: after a crash of the machine it may be too low, never too high.
  std::uint64_t synced_record() const;
  void NoteSyncedRecord(std::uint64_t number) const;

 private:
  JournalFolder(std::string path, OwnedFd lock, OwnedFd synced);

  std::string path_;
  OwnedFd lock_;
  OwnedFd synced_;
};

}  // namespace ddprun
