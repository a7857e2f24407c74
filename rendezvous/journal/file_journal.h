// SPDX-License-Identifier: Apache-2.0
// The journal in a folder of this machine, for one service at a time:
//
//   lock         held (flock) while a service has the folder; holds its process id, for people
//   journal      journal_format.h
//   journal.new  a snapshot that is being made; of no meaning when the folder is opened
//
// A snapshot is written to journal.new while records go on going to journal; those that came
// meanwhile are added, it is brought to the disk and renamed over journal, and the folder is
// brought to the disk. So there is a whole journal under that name at every moment.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/journal/journal.h"

namespace ddprun {

struct FileJournalOptions {
  // False: a commit survives the end of the process at once, and a crash of the machine after
  // `sync_interval`. True: both at once, for the price of one flush of the disk a commit (shared by
  // those that come together).
  bool sync_on_commit = false;
  std::chrono::milliseconds sync_interval = kJournalSyncInterval;
  std::size_t segment_bytes_max = kJournalSegmentBytesMax;  // when a snapshot is wanted
};

// Makes the folder if it is not there (not what it is in). Errors, each a sentence that names the
// path and the next move: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (no folder, or what is
// there is no journal), ALREADY_EXISTS (another service has it), FAILED_PRECONDITION (another
// format), DATA_LOSS (damaged), RESOURCE_EXHAUSTED (disk full), or what a callback of `replay`
// returned.
absl::StatusOr<std::unique_ptr<Journal>> OpenFileJournal(const std::string& folder,
                                                         const FileJournalOptions& options,
                                                         const JournalReplay& replay);

}  // namespace ddprun
