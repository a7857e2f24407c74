// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/journal/file_journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/journal/journal_file.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

// What came while a snapshot was written is added in turns; the last turn, for which all commits
// wait, should be short.
constexpr std::size_t kCatchUpTurnsMax = 8;
constexpr std::size_t kCatchUpBytes = 256 * 1024;

absl::Status SyncFolder(const std::string& folder) {
  const OwnedFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0 || fsync(fd.get()) != 0) {
    return JournalError("cannot bring to the disk the folder", folder, errno);
  }
  return absl::OkStatus();
}

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

class FileJournal final : public Journal {
 public:
  FileJournal(std::string folder, const FileJournalOptions& options, OwnedFd lock,
              std::unique_ptr<JournalFile> file)
      : folder_(std::move(folder)),
        options_(options),
        lock_(std::move(lock)),
        bytes_cut_(file->bytes_cut()),
        file_(std::move(file)),
        file_end_(file_->end()),
        synced_end_(file_end_),
        marked_end_(file_end_),
        snapshot_due_(SnapshotDue()),
        keeper_([this] { Keep(); }) {}

  ~FileJournal() override;

  std::uint64_t Append(std::string record) override;
  absl::Status Commit(std::uint64_t record) override;
  bool WantsSnapshot() override;
  void Snapshot(std::vector<std::string> parts) override;
  JournalReport Report() override;

 private:
  using Lock = std::unique_lock<std::mutex>;

  // The writer: one thread at a time, which alone touches the file, without the mutex.
  void BecomeWriter(Lock& lock);
  void EndWriter();
  void WriteQueue(Lock& lock);  // by the writer

  // The keeper's thread.
  void Keep();
  void SyncNow(Lock& lock);
  void TakeSnapshot(Lock& lock);
  absl::StatusOr<std::unique_ptr<JournalFile>> WriteSnapshot(const std::vector<std::string>& parts);
  absl::Status SwitchTo(std::unique_ptr<JournalFile> fresh, Lock& lock);  // by the writer

  void SetDirty();
  std::uint64_t SnapshotDue() const {
    return std::max<std::uint64_t>(options_.segment_bytes_max, 2 * file_->snapshot_end());
  }
  std::string PathOf(absl::string_view name) const { return absl::StrCat(folder_, "/", name); }

  const std::string folder_;
  const FileJournalOptions options_;
  const OwnedFd lock_;
  const std::uint64_t bytes_cut_;

  // Used by the writer; replaced by the keeper while it is the writer, so that the keeper may
  // always sync it.
  std::unique_ptr<JournalFile> file_;

  std::mutex mutex_;  // guards what follows; std's, since it can wait on the steady clock
  std::condition_variable written_;       // written_record_, error_ or writing_ has changed
  std::condition_variable keeper_wakes_;  // dirty_since_, parts_ or stopping_ has
  bool stopping_ = false;
  bool writing_ = false;
  absl::Status error_;
  Batch queue_;
  std::uint64_t last_record_ = 0;
  std::uint64_t written_record_ = 0;
  std::uint64_t file_end_;
  std::uint64_t synced_end_;                      // up to here the file is on disk
  std::uint64_t marked_end_;                      // and up to here it says so
  std::optional<Clock::time_point> dirty_since_;  // records wait for the file or for the disk

  std::uint64_t snapshot_due_;  // the file's size
  std::uint64_t snapshots_ = 0;
  absl::Status last_snapshot_;
  bool snapshotting_ = false;  // from Snapshot() until it is in place or has failed
  std::optional<std::vector<std::string>> parts_;  // until the keeper takes them
  Batch since_snapshot_;                           // a copy of what came after them

  std::thread keeper_;  // last: it uses all of the above
};

FileJournal::~FileJournal() {
  {
    Lock lock(mutex_);
    stopping_ = true;
  }
  keeper_wakes_.notify_one();
  keeper_.join();
  Lock lock(mutex_);
  BecomeWriter(lock);
  WriteQueue(lock);
  if (error_.ok() && file_->Sync().ok()) file_->WriteMark(file_->end()).IgnoreError();
  EndWriter();
}

std::uint64_t FileJournal::Append(std::string record) {
  Lock lock(mutex_);
  ++last_record_;
  if (!error_.ok()) return last_record_;
  if (queue_.bytes + record.size() > kJournalQueueBytesMax) {
    error_ = absl::ResourceExhaustedError(absl::StrCat(
        "the journal in ", folder_, " has ", queue_.bytes,
        " bytes that wait for the disk, its limit: the disk is too slow; name a folder on a faster "
        "one and start the service again"));
    written_.notify_all();
    return last_record_;
  }
  if (snapshotting_ && last_snapshot_.ok()) {
    since_snapshot_.Add(record);
    if (since_snapshot_.bytes > kJournalQueueBytesMax) {
      last_snapshot_ = absl::ResourceExhaustedError(absl::StrCat(
          "records came faster than a snapshot of the journal in ", folder_, " could be written"));
      since_snapshot_ = Batch();
    }
  }
  queue_.Add(std::move(record));
  SetDirty();
  return last_record_;
}

absl::Status FileJournal::Commit(std::uint64_t record) {
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
          absl::StrCat("the disk of the journal in ", folder_, " has not answered for ",
                       kJournalAnswerTimeout.count(), " s; check that disk"));
    }
  }
  return absl::OkStatus();
}

bool FileJournal::WantsSnapshot() {
  Lock lock(mutex_);
  return error_.ok() && !snapshotting_ && file_end_ + queue_.bytes >= snapshot_due_;
}

void FileJournal::Snapshot(std::vector<std::string> parts) {
  {
    Lock lock(mutex_);
    if (!error_.ok() || snapshotting_) return;
    snapshotting_ = true;
    last_snapshot_ = absl::OkStatus();
    parts_ = std::move(parts);
  }
  keeper_wakes_.notify_one();
}

JournalReport FileJournal::Report() {
  Lock lock(mutex_);
  JournalReport report;
  report.place = PathOf("journal");
  report.bytes = file_end_;
  report.snapshots = snapshots_;
  report.bytes_cut = bytes_cut_;
  report.error = error_;
  report.last_snapshot = last_snapshot_;
  return report;
}

// ---- The writer

void FileJournal::BecomeWriter(Lock& lock) {
  while (writing_) written_.wait(lock);
  writing_ = true;
}

void FileJournal::EndWriter() {
  writing_ = false;
  written_.notify_all();
}

void FileJournal::WriteQueue(Lock& lock) {
  if (!error_.ok()) {
    queue_ = Batch();
    return;
  }
  const Batch batch = queue_.Take();
  const std::uint64_t last = last_record_;
  const bool mark = synced_end_ > marked_end_;
  const std::uint64_t marked = synced_end_;
  lock.unlock();
  absl::Status status = mark ? file_->WriteMark(marked) : absl::OkStatus();
  if (status.ok()) status = file_->Write(batch.records);
  const bool sync = options_.sync_on_commit && !batch.records.empty();
  if (status.ok() && sync) status = file_->Sync();
  const std::uint64_t end = file_->end();
  lock.lock();
  if (!status.ok()) {
    error_ = std::move(status);
    return;
  }
  written_record_ = last;
  file_end_ = end;
  if (mark) marked_end_ = marked;
  if (sync) {
    synced_end_ = end;
  } else if (!batch.records.empty()) {
    SetDirty();
  }
}

void FileJournal::SetDirty() {
  if (dirty_since_) return;
  dirty_since_ = Clock::now();
  keeper_wakes_.notify_one();
}

// ---- The keeper

void FileJournal::Keep() {
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

// Others write meanwhile.
void FileJournal::SyncNow(Lock& lock) {
  dirty_since_.reset();
  if (!queue_.records.empty()) {
    BecomeWriter(lock);
    WriteQueue(lock);
    EndWriter();
    if (queue_.records.empty()) dirty_since_.reset();
  }
  const std::uint64_t end = file_end_;
  if (!error_.ok() || end <= synced_end_) return;
  lock.unlock();
  absl::Status status = file_->Sync();
  lock.lock();
  if (!status.ok()) {
    if (error_.ok()) error_ = std::move(status);
    written_.notify_all();
    return;
  }
  synced_end_ = end;
  // Says so in the file; does not count as dirt, or there would be no end.
  BecomeWriter(lock);
  WriteQueue(lock);
  EndWriter();
}

void FileJournal::TakeSnapshot(Lock& lock) {
  const std::vector<std::string> parts = std::move(*parts_);
  parts_.reset();
  lock.unlock();
  auto fresh = WriteSnapshot(parts);
  lock.lock();
  absl::Status status = fresh.status();
  for (std::size_t turn = 0; status.ok() && since_snapshot_.bytes > kCatchUpBytes; ++turn) {
    if (turn == kCatchUpTurnsMax) break;
    const Batch batch = since_snapshot_.Take();
    lock.unlock();
    status = (*fresh)->Write(batch.records);
    if (status.ok()) status = (*fresh)->Sync();
    lock.lock();
  }
  BecomeWriter(lock);
  // The old file gets all it should have, so that nothing depends on the switch.
  WriteQueue(lock);
  if (status.ok()) status = error_;
  if (status.ok()) status = last_snapshot_;  // Append gave up
  if (status.ok()) status = SwitchTo(*std::move(fresh), lock);
  since_snapshot_ = Batch();
  snapshotting_ = false;
  last_snapshot_ = status;
  if (status.ok()) {
    ++snapshots_;
    snapshot_due_ = SnapshotDue();
  } else {
    // Not at once again: what failed will fail again for a while.
    snapshot_due_ = std::max(snapshot_due_, 2 * file_end_);
    unlink(PathOf("journal.new").c_str());
  }
  EndWriter();
}

absl::StatusOr<std::unique_ptr<JournalFile>> FileJournal::WriteSnapshot(
    const std::vector<std::string>& parts) {
  auto fresh = JournalFile::Create(PathOf("journal.new"), parts);
  if (!fresh.ok()) return fresh;
  if (absl::Status status = (*fresh)->Sync(); !status.ok()) return status;
  return fresh;
}

// What was queued while the old file was written last is in since_snapshot_ too, at its end; it
// stays in the queue only, and goes to the new file from there.
absl::Status FileJournal::SwitchTo(std::unique_ptr<JournalFile> fresh, Lock& lock) {
  Batch rest = since_snapshot_.Take();
  rest.records.resize(rest.records.size() - queue_.records.size());
  lock.unlock();
  absl::Status status = fresh->Write(rest.records);
  if (status.ok()) status = fresh->Sync();
  if (status.ok()) status = fresh->RenameTo(PathOf("journal"));
  absl::Status of_folder;
  if (status.ok()) {
    file_ = std::move(fresh);
    of_folder = SyncFolder(folder_);
  }
  lock.lock();
  if (!status.ok()) return status;
  file_end_ = synced_end_ = file_->end();
  marked_end_ = file_->snapshot_end();
  error_ = of_folder;
  return of_folder;
}

// ---- Opening

absl::Status MakeFolder(const std::string& folder) {
  if (folder.empty()) return absl::InvalidArgumentError("the journal's folder has an empty name");
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return JournalError("cannot make the journal's folder", folder, errno);
  }
  struct stat about {};
  if (stat(folder.c_str(), &about) != 0) return JournalError("cannot open", folder, errno);
  if (S_ISDIR(about.st_mode)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the journal needs a folder, and ", folder, " is a file; name another"));
}

absl::StatusOr<OwnedFd> LockFolder(const std::string& folder) {
  const std::string path = folder + "/lock";
  OwnedFd lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (lock.get() < 0) return JournalError("cannot write the journal's lock", path, errno);
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return JournalError("cannot lock", path, errno);
    char text[32] = {};
    const ssize_t count = pread(lock.get(), text, sizeof text - 1, 0);
    return absl::AlreadyExistsError(
        absl::StrCat("the journal in ", folder, " belongs to a service that runs (process ",
                     count > 0 ? text : "unknown", "); stop it, or name another folder"));
  }
  const std::string pid = absl::StrCat(getpid());
  if (ftruncate(lock.get(), 0) != 0 ||
      pwrite(lock.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return JournalError("cannot write the journal's lock", path, errno);
  }
  return lock;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Journal>> OpenFileJournal(const std::string& folder,
                                                         const FileJournalOptions& options,
                                                         const JournalReplay& replay) {
  if (absl::Status status = MakeFolder(folder); !status.ok()) return status;
  auto lock = LockFolder(folder);
  if (!lock.ok()) return lock.status();
  const std::string path = folder + "/journal";
  const std::string fresh = path + ".new";
  if (unlink(fresh.c_str()) != 0 && errno != ENOENT) {
    return JournalError("cannot remove", fresh, errno);
  }
  auto file = JournalFile::Open(path, replay);
  if (absl::IsNotFound(file.status())) {
    file = JournalFile::Create(fresh, {});
    absl::Status status = file.status();
    if (status.ok()) status = (*file)->Sync();
    if (status.ok()) status = (*file)->RenameTo(path);
    if (status.ok()) status = SyncFolder(folder);
    if (!status.ok()) return status;
  }
  if (!file.ok()) return file.status();
  return std::make_unique<FileJournal>(folder, options, *std::move(lock), *std::move(file));
}

}  // namespace ddprun
