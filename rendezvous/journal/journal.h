// SPDX-License-Identifier: Apache-2.0
// Where the service writes down what it has accepted before it says so to anyone, so that the next
// process can go on where this one ended. An interface, since a cluster may want it in etcd; the
// one that is here is a SQLite database (sqlite_journal.h).
//
// A journal is a snapshot, in parts, and the records after it. Whoever opens it is given both, in
// order; replaying them gives the state in which the last process died. What parts and records mean
// is not known here.
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

// For people and programs that ask how the service is.
struct JournalReport {
  std::string place;            // path or address
  std::uint64_t bytes = 0;      // that a restart would read
  std::uint64_t snapshots = 0;  // taken since it was opened
  absl::Status error;           // why nothing is written any more
  absl::Status last_snapshot;   // why the last snapshot failed; the journal only grows then
};

// Threadsafe.
class Journal {
 public:
  virtual ~Journal() = default;

  // Queues a record and returns its number; numbers are given in order. Does not wait, so that it
  // can be called under the lock of the state that the record changes: the order of the calls is
  // the order of the replay.
  virtual std::uint64_t Append(std::string record) = 0;

  // Returns once all records up to that one survive the end of this process (and of the machine, if
  // the journal was opened so). Only then may anyone be told. Call it without the state's lock:
  // while one caller writes, the records of the others gather and go out as one write.
  //
  // RESOURCE_EXHAUSTED (disk full, or slower than the records come), DEADLINE_EXCEEDED (the disk
  // does not answer), or what the system said. All but DEADLINE_EXCEEDED are for ever: this and all
  // later records are lost, and the service must end. A restart finds everything that was
  // committed.
  virtual absl::Status Commit(std::uint64_t record) = 0;

  // The records have become many. Cheap enough to be asked after each Append.
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
