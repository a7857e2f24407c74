// SPDX-License-Identifier: Apache-2.0
// The write-ahead log of the service: what it has accepted is recorded before it is answered, so
// that the next process continues where this one ended. An interface, since a cluster may want it
// in etcd; sqlite_journal.h implements it.
//
// A journal is a snapshot, in parts, and the records after it. Opening it replays both, in order,
// which gives the state in which the last process ended. The contents of parts and records are
// opaque here.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// Called by the opening function, in this order: all parts, then all records. A status that is not
// OK ends the opening with it.
struct JournalReplay {
  std::function<absl::Status(absl::string_view part)> on_part;
  std::function<absl::Status(absl::string_view record)> on_record;
};

struct JournalReport {
  std::uint64_t bytes = 0;      // read by a restart
  std::uint64_t snapshots = 0;  // taken since it was opened
  absl::Status error;           // why nothing can be written any more
  absl::Status last_snapshot;   // why the last snapshot failed; the journal only grows then
};

// Threadsafe.
class Journal {
 public:
  virtual ~Journal() = default;

  // Queues a record and returns its number; numbers increase. Does not wait, so that it can be
  // called under the lock of the state that the record changes: the order of the calls is the order
  // of the replay.
  virtual std::uint64_t Append(std::string record) = 0;

  // Returns once all records up to that one survive the end of this process (and of the machine, if
  // the journal was opened so). Only then may they be answered. Call it without the state's lock:
  // while one caller writes, the records of the others gather and are written together.
  //
  // RESOURCE_EXHAUSTED (disk full, or slower than the records come), DEADLINE_EXCEEDED (the disk
  // does not answer), or the error of the system. All but DEADLINE_EXCEEDED are permanent: this and
  // all later records are lost, and the service must end. A restart finds everything that was
  // committed.
  virtual absl::Status Commit(std::uint64_t record) = 0;

  // The records take much space. Cheap enough to be called after each Append.
  virtual bool WantsSnapshot() = 0;

  // Replaces everything by `parts`, which hold the state after all records that were appended so
  // far: call it under the same lock as Append. Does not wait: written in the background; until it
  // is safe the old one stays, and a failure leaves the journal as it was
  // (JournalReport::last_snapshot). Ignored while another is under way. No part may have more than
  // kJournalRecordBytesMax bytes.
  virtual void Snapshot(std::vector<std::string> parts) = 0;

  virtual JournalReport Report() = 0;
};

}  // namespace ddprun
