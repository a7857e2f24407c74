// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/journal/sqlite_journal.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/journal/journal_database.h"
#include "rendezvous/journal/journal_folder.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

// Records that wait to be written.
struct Batch {
  std::vector<std::string> records;
  std::size_t bytes = 0;

  void Add(std::string record) {
    bytes += record.size();
    records.push_back(std::move(record));
  }
  Batch Take() { return std::exchange(*this, Batch()); }
};

// The parts of a snapshot, and the last record that they include.
struct Parts {
  std::vector<std::string> parts;
  std::uint64_t last_record = 0;
};

class SqliteJournal final : public Journal {
 public:
  SqliteJournal(JournalFolder folder, const SqliteJournalOptions& options,
                std::unique_ptr<JournalDatabase> database)
      : folder_(std::move(folder)),
        options_(options),
        database_(std::move(database)),
        records_before_(database_->last_record()),
        bytes_(database_->Bytes()),
        synced_record_(records_before_),
        snapshot_due_(SnapshotDue()),
        keeper_([this] { Keep(); }) {}

  ~SqliteJournal() override;

  std::uint64_t Append(std::string record) override;
  absl::Status Commit(std::uint64_t record) override;
  bool WantsSnapshot() override;
  void Snapshot(std::vector<std::string> parts) override;
  JournalReport Report() override;

 private:
  using Lock = std::unique_lock<std::mutex>;

  // The writer: one thread at a time; only it uses the database, without the mutex.
  void BecomeWriter(Lock& lock);
  void EndWriter();
  void WriteQueue(Lock& lock);  // by the writer
  // By the writer, without the mutex: `what` of the database.
  absl::Status Use(Lock& lock, const std::function<absl::Status()>& what);
  absl::Status UseAsWriter(Lock& lock, const std::function<absl::Status()>& what);

  // The keeper's thread.
  void Keep();
  void SyncNow(Lock& lock);
  void TakeSnapshot(Lock& lock);
  absl::Status AddSnapshot(const Parts& snapshot, Lock& lock);
  absl::Status DeleteOld(Lock& lock);

  void SetDirty();
  std::uint64_t SnapshotDue() const {
    return std::max<std::uint64_t>(options_.segment_bytes_max, 2 * database_->snapshot_bytes());
  }

  const JournalFolder folder_;
  const SqliteJournalOptions options_;
  const std::unique_ptr<JournalDatabase> database_;  // the writer's, except for Sync()
  // Callers count records from 1; the database counts from the creation of the folder.
  const std::uint64_t records_before_;

  std::mutex mutex_;  // guards what follows; std's, since it can wait on the steady clock
  std::condition_variable written_;       // written_record_, error_ or writing_ has changed
  std::condition_variable keeper_wakes_;  // dirty_since_, parts_ or stopping_ has
  bool stopping_ = false;
  bool writing_ = false;
  absl::Status error_;
  Batch queue_;
  std::uint64_t last_record_ = 0;
  std::uint64_t written_record_ = 0;
  std::uint64_t bytes_;
  std::uint64_t synced_record_;                   // in the folder's numbering
  std::optional<Clock::time_point> dirty_since_;  // records wait to be written or flushed

  std::uint64_t snapshot_due_;  // at so many bytes
  std::uint64_t snapshots_ = 0;
  absl::Status last_snapshot_;
  bool snapshotting_ = false;   // from Snapshot() until it is in place or has failed
  std::optional<Parts> parts_;  // until the keeper takes them

  std::thread keeper_;  // last: it uses all of the above
};

SqliteJournal::~SqliteJournal() {
  {
    Lock lock(mutex_);
    stopping_ = true;
  }
  keeper_wakes_.notify_one();
  keeper_.join();
  Lock lock(mutex_);
  BecomeWriter(lock);
  WriteQueue(lock);
  if (error_.ok() && database_->Sync().ok()) folder_.NoteSyncedRecord(database_->last_record());
  EndWriter();
}

std::uint64_t SqliteJournal::Append(std::string record) {
  Lock lock(mutex_);
  ++last_record_;
  if (!error_.ok()) return last_record_;
  if (queue_.bytes + record.size() > kJournalQueueBytesMax) {
    error_ = absl::ResourceExhaustedError(absl::StrCat(
        "the journal in ", folder_.path(), " has ", queue_.bytes,
        " bytes that wait for the disk, its limit: the disk is too slow; name a folder on a faster "
        "one and start the service again"));
    written_.notify_all();
    return last_record_;
  }
  queue_.Add(std::move(record));
  SetDirty();
  return last_record_;
}

absl::Status SqliteJournal::Commit(std::uint64_t record) {
  const auto deadline = Clock::now() + kJournalAnswerTimeout;
  Lock lock(mutex_);
  record = std::min(record, last_record_);
  while (written_record_ < record) {
    if (!error_.ok()) return error_;
    if (!writing_) {
      BecomeWriter(lock);
      WriteQueue(lock);
      EndWriter();
    } else if (written_.wait_until(lock, deadline) == std::cv_status::timeout &&
               Clock::now() >= deadline && written_record_ < record) {
      return absl::DeadlineExceededError(
          absl::StrCat("the disk of the journal in ", folder_.path(), " has not answered for ",
                       kJournalAnswerTimeout.count(), " s; check that disk"));
    }
  }
  return absl::OkStatus();
}

bool SqliteJournal::WantsSnapshot() {
  Lock lock(mutex_);
  return error_.ok() && !snapshotting_ && bytes_ + queue_.bytes >= snapshot_due_;
}

void SqliteJournal::Snapshot(std::vector<std::string> parts) {
  {
    Lock lock(mutex_);
    if (!error_.ok() || snapshotting_) return;
    snapshotting_ = true;
    last_snapshot_ = absl::OkStatus();
    parts_ = Parts{std::move(parts), last_record_};
  }
  keeper_wakes_.notify_one();
}

JournalReport SqliteJournal::Report() {
  Lock lock(mutex_);
  JournalReport report;
  report.bytes = bytes_;
  report.snapshots = snapshots_;
  report.error = error_;
  report.last_snapshot = last_snapshot_;
  return report;
}

// ---- The writer

void SqliteJournal::BecomeWriter(Lock& lock) {
  while (writing_) written_.wait(lock);
  writing_ = true;
}

void SqliteJournal::EndWriter() {
  writing_ = false;
  written_.notify_all();
}

absl::Status SqliteJournal::Use(Lock& lock, const std::function<absl::Status()>& what) {
  lock.unlock();
  absl::Status status = what();
  const std::uint64_t bytes = database_->Bytes();
  lock.lock();
  bytes_ = bytes;
  return status;
}

absl::Status SqliteJournal::UseAsWriter(Lock& lock, const std::function<absl::Status()>& what) {
  BecomeWriter(lock);
  absl::Status status = Use(lock, what);
  EndWriter();
  return status;
}

void SqliteJournal::WriteQueue(Lock& lock) {
  if (!error_.ok() || queue_.records.empty()) {
    queue_ = Batch();
    return;
  }
  const Batch batch = queue_.Take();
  const std::uint64_t last = last_record_;
  absl::Status status = Use(lock, [&] {
    absl::Status written = database_->AddRecords(batch.records);
    if (!written.ok() || !options_.sync_on_commit) return written;
    written = database_->Sync();
    if (written.ok()) folder_.NoteSyncedRecord(database_->last_record());
    return written;
  });
  if (!status.ok()) {
    error_ = std::move(status);
    return;
  }
  written_record_ = last;
  if (options_.sync_on_commit) {
    synced_record_ = records_before_ + last;
  } else {
    SetDirty();
  }
}

void SqliteJournal::SetDirty() {
  if (dirty_since_) return;
  dirty_since_ = Clock::now();
  keeper_wakes_.notify_one();
}

// ---- The keeper

void SqliteJournal::Keep() {
  Lock lock(mutex_);
  while (!stopping_) {
    if (error_.ok() && parts_) {
      TakeSnapshot(lock);
    } else if (!error_.ok() || !dirty_since_) {
      keeper_wakes_.wait(lock);
    } else if (const auto due = *dirty_since_ + options_.sync_interval; Clock::now() < due) {
      keeper_wakes_.wait_until(lock, due);
    } else {
      SyncNow(lock);
    }
  }
}

// Other threads write during the flush.
void SqliteJournal::SyncNow(Lock& lock) {
  BecomeWriter(lock);
  WriteQueue(lock);
  EndWriter();
  if (queue_.records.empty()) dirty_since_.reset();
  const std::uint64_t record = records_before_ + written_record_;
  if (!error_.ok() || record <= synced_record_) return;
  lock.unlock();
  absl::Status status = database_->Sync();
  if (status.ok()) folder_.NoteSyncedRecord(record);
  lock.lock();
  synced_record_ = record;
  if (status.ok()) return;
  if (error_.ok()) error_ = std::move(status);
  written_.notify_all();
}

void SqliteJournal::TakeSnapshot(Lock& lock) {
  const Parts snapshot = *std::move(parts_);
  parts_.reset();
  absl::Status status = AddSnapshot(snapshot, lock);
  if (status.ok()) status = DeleteOld(lock);
  if (status.ok()) {
    // Flushes beforehand what the checkpoint would flush while others wait.
    SyncNow(lock);
    status = UseAsWriter(lock, [&] { return database_->Checkpoint(); });
  }
  if (status.ok()) ++snapshots_;
  // After a failure the next attempt waits, since it would fail too.
  snapshot_due_ = status.ok() ? SnapshotDue() : std::max(snapshot_due_, 2 * bytes_);
  snapshotting_ = false;
  last_snapshot_ = std::move(status);
}

absl::Status SqliteJournal::AddSnapshot(const Parts& snapshot, Lock& lock) {
  // Left over from a failed snapshot.
  absl::Status status = DeleteOld(lock);
  for (std::size_t i = 0; status.ok() && i < snapshot.parts.size(); ++i) {
    status = UseAsWriter(lock, [&] { return database_->AddPart(snapshot.parts[i]); });
  }
  BecomeWriter(lock);
  // All records that it includes, so that the records after it come next.
  WriteQueue(lock);
  if (status.ok()) status = error_;
  status = Use(lock, [&] {
    if (status.ok()) {
      status = database_->SetSnapshot(records_before_ + snapshot.last_record + 1);
    }
    if (!status.ok()) database_->DropAdded();
    return status;
  });
  EndWriter();
  return status;
}

absl::Status SqliteJournal::DeleteOld(Lock& lock) {
  absl::StatusOr<bool> more = true;
  while (more.ok() && *more) {
    UseAsWriter(lock, [&] {
      more = database_->DeleteSomeOld();
      return more.status();
    }).IgnoreError();
  }
  return more.status();
}

// ---- Opening

absl::Status Remove(const std::string& path) {
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return JournalError("cannot remove", path, errno);
}

// Creates an empty journal under its final name.
absl::Status MakeJournal(const JournalFolder& folder) {
  const std::string path = folder.PathOf("journal");
  const std::string fresh = path + ".new";
  // Also files left by a journal that was moved away.
  for (const std::string& left : {path + "-wal", fresh, fresh + "-wal", fresh + "-journal"}) {
    if (absl::Status status = Remove(left); !status.ok()) return status;
  }
  folder.NoteSyncedRecord(0);
  if (absl::Status status = JournalDatabase::Create(fresh); !status.ok()) return status;
  if (rename(fresh.c_str(), path.c_str()) != 0) {
    return JournalError("cannot rename the new journal to", path, errno);
  }
  return folder.Sync();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Journal>> OpenSqliteJournal(const std::string& folder,
                                                           const SqliteJournalOptions& options,
                                                           const JournalReplay& replay) {
  auto opened = JournalFolder::Open(folder);
  if (!opened.ok()) return opened.status();
  const std::string path = opened->PathOf("journal");
  const auto open = [&] { return JournalDatabase::Open(path, opened->synced_record(), replay); };
  auto database = open();
  if (absl::IsNotFound(database.status())) {
    if (absl::Status status = MakeJournal(*opened); !status.ok()) return status;
    database = open();
  }
  if (!database.ok()) return database.status();
  // Everything found counts from now on, since later replies may depend on it.
  absl::Status status = (*database)->Sync();
  if (status.ok()) status = opened->Sync();
  if (!status.ok()) return status;
  opened->NoteSyncedRecord((*database)->last_record());
  return std::make_unique<SqliteJournal>(*std::move(opened), options, *std::move(database));
}

}  // namespace ddprun
