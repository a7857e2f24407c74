// SPDX-License-Identifier: Apache-2.0
// The journal in a folder of this machine, for one service at a time:
//
//   lock                  held (flock) while a service has the folder; its process id, for people
//   journal, journal-wal  journal_database.h
//   synced                the number of the last record that was flushed to the disk
//   journal.new           a journal that is being created; ignored when the folder is opened
//
// Records of concurrent callers are written as one transaction, by one of the callers. The
// journal's thread flushes them to the disk and writes snapshots: part by part between the records,
// then one row that activates them; then what they replace is deleted.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/journal/journal.h"

namespace ddprun {

struct SqliteJournalOptions {
  // False: a commit survives the end of the process at once, and a crash of the machine after
  // `sync_interval`. True: both at once, at the cost of one flush of the disk per commit (shared by
  // concurrent commits).
  bool sync_on_commit = false;
  std::chrono::milliseconds sync_interval = kJournalSyncInterval;
  std::size_t segment_bytes_max = kJournalSegmentBytesMax;  // when a snapshot is wanted
};

// Makes the folder if it does not exist (not its parent). Errors, each a sentence that names the
// path and the next move: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (no folder, or what is
// there is no journal), ALREADY_EXISTS (another service has it), FAILED_PRECONDITION (another
// format), DATA_LOSS (damaged), RESOURCE_EXHAUSTED (disk full), or what a callback of `replay`
// returned.
absl::StatusOr<std::unique_ptr<Journal>> OpenSqliteJournal(const std::string& folder,
                                                           const SqliteJournalOptions& options,
                                                           const JournalReplay& replay);

}  // namespace ddprun
