// SPDX-License-Identifier: Apache-2.0
// The journal's file: a SQLite database in WAL mode (https://sqlite.org/wal.html), held by one
// connection. SqliteJournal decides what is written when. Not threadsafe, except for Sync().
//
//   records   appended since the snapshot
//   parts     the snapshot's parts, and those of a snapshot that was never finished or was replaced
//   snapshot  one row: which parts are the snapshot's, and the first record after it
//
// All three have the same columns: number, a CRC-32 of number and bytes, and the bytes. SQLite's
// WAL has checksums and its database pages have none, and a WAL is read up to its first damaged
// frame without an error; hence the CRC, and the number of the last record that was flushed, which
// the caller keeps elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rendezvous/base/owned_fd.h"
#include "rendezvous/journal/journal.h"

struct sqlite3;
struct sqlite3_stmt;

namespace ddprun {

inline constexpr std::uint32_t kJournalVersion = 3;

class JournalDatabase {
 public:
  // Makes an empty journal at `path`, where nothing may be. It has the journal's own name only once
  // it is whole: the caller renames it.
  static absl::Status Create(const std::string& path);

  // Opens the journal and replays it. NOT_FOUND: no such file. INVALID_ARGUMENT: not a
  // journal. FAILED_PRECONDITION: of another version. DATA_LOSS: damaged, or it ends before
  // `synced_record`.
  static absl::StatusOr<std::unique_ptr<JournalDatabase>> Open(const std::string& path,
                                                               std::uint64_t synced_record,
                                                               const JournalReplay& replay);
  ~JournalDatabase();
  JournalDatabase(const JournalDatabase&) = delete;
  JournalDatabase& operator=(const JournalDatabase&) = delete;

  // All of them or none, in one transaction. The first gets the number last_record() + 1.
  absl::Status AddRecords(const std::vector<std::string>& records);

  // A snapshot is added part by part, so that records can be added between them; SetSnapshot() then
  // puts it in place of all records before `first_record`, at once.
  absl::Status AddPart(const std::string& part);
  absl::Status SetSnapshot(std::uint64_t first_record);
  // Discards the parts that were added: the snapshot has failed.
  void DropAdded();
  // Some of the rows that a snapshot has replaced, or that belong to one that failed. False: none
  // are left.
  absl::StatusOr<bool> DeleteSomeOld();
  // Copies the WAL into the database, flushes that, and begins the WAL anew.
  absl::Status Checkpoint();

  // Flushes to the disk what was written before. May run beside the others.
  absl::Status Sync() const;

  std::uint64_t last_record() const { return last_record_; }
  // That a restart would read: what is live in the database, and the WAL.
  std::uint64_t Bytes() const;
  std::uint64_t snapshot_bytes() const { return snapshot_bytes_; }

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;

  explicit JournalDatabase(std::string path) : path_(std::move(path)) {}

  absl::Status Connect();
  absl::Status MakeEmpty();
  absl::Status Run(const char* sql);
  absl::StatusOr<Statement> Prepare(const char* sql);
  absl::StatusOr<std::int64_t> Number(const char* sql);
  absl::Status PrepareAll();
  absl::Status Step(sqlite3_stmt* statement);
  absl::Status InTransaction(const std::function<absl::Status()>& work);
  absl::Status Insert(sqlite3_stmt* insert, std::uint64_t number, absl::string_view bytes);
  absl::Status Replay(std::uint64_t synced_record, const JournalReplay& replay);
  // The rows of `table` from `first` to before `end`, whose numbers must follow each other. Returns
  // the number after the last.
  absl::StatusOr<std::uint64_t> Read(
      const char* table, std::uint64_t first, std::uint64_t end,
      const std::function<absl::Status(absl::string_view bytes)>& on_row);
  absl::Status MeasureDatabase();
  absl::Status Error(absl::string_view what) const;
  absl::Status Damaged(absl::string_view why) const;

  const std::string path_;
  sqlite3* connection_ = nullptr;
  OwnedFd wal_;
  Statement begin_;
  Statement commit_;
  Statement rollback_;
  Statement insert_record_;
  Statement insert_part_;
  Statement set_snapshot_;
  std::uint64_t last_record_ = 0;
  std::uint64_t first_record_ = 1;  // after the snapshot
  std::uint64_t first_part_ = 1;    // of the snapshot
  std::uint64_t part_end_ = 1;      // and the number after its last
  std::uint64_t next_part_ = 1;     // of the snapshot that is being added
  std::uint64_t adding_from_ = 1;   // its first part
  std::uint64_t database_bytes_ = 0;
  std::uint64_t snapshot_bytes_ = 0;
};

}  // namespace ddprun
