// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/etcd/etcd_journal.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/etcd/etcd_log.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

class EtcdJournal final : public Journal {
 public:
  EtcdJournal(std::unique_ptr<EtcdClient> client, std::unique_ptr<EtcdLog> log,
              std::shared_ptr<LeaderTerm> term, const EtcdJournalOptions& options)
      : client_(std::move(client)),
        log_(std::move(log)),
        term_(std::move(term)),
        options_(options),
        bytes_(log_->bytes()),
        values_(log_->values()),
        bytes_due_(BytesDue()),
        values_due_(options_.segment_values_max),
        writer_([this] { Write(); }) {}

  // What was appended is written, if etcd answers soon.
  ~EtcdJournal() override {
    {
      Lock lock(mutex_);
      stopping_ = true;
      wakes_.notify_one();
      changed_.wait_for(lock, kEtcdCloseTimeout, [this] { return ended_; });
    }
    client_->Close();
    writer_.join();
  }

  std::uint64_t Append(std::string record) override {
    Lock lock(mutex_);
    ++last_record_;
    if (!error_.ok()) return last_record_;
    if (queue_bytes_ + record.size() > kJournalQueueBytesMax) {
      Fail(absl::ResourceExhaustedError(
          absl::StrCat("the journal has ", queue_bytes_,
                       " bytes that wait for etcd, its limit: etcd is too slow; give its members "
                       "faster disks and start the service again")));
      return last_record_;
    }
    queue_bytes_ += record.size();
    queue_.push_back(std::move(record));
    wakes_.notify_one();
    return last_record_;
  }

  absl::Status Commit(std::uint64_t record) override {
    const TimePoint deadline = Clock::now() + kJournalAnswerTimeout;
    {
      Lock lock(mutex_);
      record = std::min(record, last_record_);
      while (written_record_ < record) {
        if (!error_.ok()) return error_;
        if (changed_.wait_until(lock, deadline) == std::cv_status::timeout &&
            Clock::now() >= deadline && written_record_ < record) {
          return NoAnswer();
        }
      }
      if (!error_.ok()) return error_;
    }
    return term_->Await(deadline) ? absl::OkStatus() : NoAnswer();
  }

  bool WantsSnapshot() override {
    Lock lock(mutex_);
    return error_.ok() && !snapshotting_ &&
           (bytes_ + queue_bytes_ >= bytes_due_ || values_ >= values_due_);
  }

  void Snapshot(std::vector<std::string> parts) override {
    Lock lock(mutex_);
    if (!error_.ok() || snapshotting_) return;
    snapshotting_ = true;
    last_snapshot_ = absl::OkStatus();
    parts_ = Parts{{std::make_move_iterator(parts.begin()), std::make_move_iterator(parts.end())},
                   last_record_};
    wakes_.notify_one();
  }

  JournalReport Report() override {
    Lock lock(mutex_);
    JournalReport report;
    report.bytes = bytes_;
    report.snapshots = snapshots_;
    report.error = error_;
    report.last_snapshot = last_snapshot_;
    return report;
  }

 private:
  using Lock = std::unique_lock<std::mutex>;

  struct Parts {
    std::deque<std::string> parts;
    std::uint64_t last_record = 0;  // that they include
    bool is_begun = false;
  };

  static absl::Status NoAnswer() {
    return absl::DeadlineExceededError(
        absl::StrCat("etcd has not taken a record, or not confirmed that this service leads, for ",
                     kJournalAnswerTimeout.count(), " s; check its members"));
  }

  void Fail(absl::Status status) {
    if (error_.ok()) error_ = std::move(status);
    changed_.notify_all();
  }

  std::uint64_t BytesDue() const {
    return std::max<std::uint64_t>(options_.segment_bytes_max, 2 * log_->bytes());
  }

  // The writer's thread, which alone uses the log: records first, a step of a snapshot between.
  void Write() {
    Lock lock(mutex_);
    while (true) {
      wakes_.wait(lock, [this] { return stopping_ || HasWork(); });
      if (!HasWork() || (stopping_ && queue_.empty())) break;
      if (!queue_.empty()) WriteRecords(lock);
      if (error_.ok() && parts_ && !stopping_) TakeSnapshotStep(lock);
    }
    ended_ = true;
    changed_.notify_all();
  }

  bool HasWork() const { return error_.ok() && (!queue_.empty() || parts_.has_value()); }

  void WriteRecords(Lock& lock) {
    // The records that a snapshot includes must not share a value with those after it.
    const bool is_bounded = parts_ && !parts_->is_begun;
    std::vector<std::string> records;
    std::size_t bytes = 0;
    std::uint64_t last = written_record_;
    while (!queue_.empty() && !(is_bounded && last == parts_->last_record) &&
           (records.empty() || bytes + queue_.front().size() <= kEtcdValueBytesMax)) {
      bytes += queue_.front().size();
      records.push_back(std::move(queue_.front()));
      queue_.pop_front();
      ++last;
    }
    if (records.empty()) return;
    lock.unlock();
    absl::Status status = log_->Write(records);
    lock.lock();
    queue_bytes_ -= bytes;
    NoteSize();
    if (!status.ok()) return Fail(std::move(status));
    written_record_ = last;
    changed_.notify_all();
  }

  void TakeSnapshotStep(Lock& lock) {
    if (written_record_ < parts_->last_record) return;
    absl::Status status;
    bool is_done = false;
    if (!parts_->is_begun) {
      parts_->is_begun = true;
      status = WithoutLock(lock, [this] { return log_->BeginSnapshot(); });
    } else if (!parts_->parts.empty()) {
      const std::string part = std::move(parts_->parts.front());
      parts_->parts.pop_front();
      status = WithoutLock(lock, [&] { return log_->AddPart(part); });
    } else {
      is_done = true;
      status = WithoutLock(lock, [this] {
        absl::Status set = log_->SetSnapshot();
        return set.ok() ? log_->DeleteOld() : set;
      });
    }
    NoteSize();
    if (status.ok() && !is_done) return;
    if (status.ok()) ++snapshots_;
    // After a failure the next attempt waits, since it would fail too.
    bytes_due_ = status.ok() ? BytesDue() : std::max(bytes_due_, 2 * bytes_);
    values_due_ = status.ok() ? options_.segment_values_max : std::max(values_due_, 2 * values_);
    snapshotting_ = false;
    parts_.reset();
    if (absl::IsFailedPrecondition(status)) Fail(status);
    last_snapshot_ = std::move(status);
  }

  template <typename What>
  absl::Status WithoutLock(Lock& lock, const What& what) {
    lock.unlock();
    absl::Status status = what();
    lock.lock();
    return status;
  }

  void NoteSize() {
    bytes_ = log_->bytes();
    values_ = log_->values();
  }

  const std::unique_ptr<EtcdClient> client_;
  const std::unique_ptr<EtcdLog> log_;  // the writer's
  const std::shared_ptr<LeaderTerm> term_;
  const EtcdJournalOptions options_;

  std::mutex mutex_;                 // guards what follows; std's, as SqliteJournal's
  std::condition_variable wakes_;    // the writer
  std::condition_variable changed_;  // written_record_, error_ or ended_ has
  bool stopping_ = false;
  bool ended_ = false;
  absl::Status error_;
  std::deque<std::string> queue_;
  std::size_t queue_bytes_ = 0;
  std::uint64_t last_record_ = 0;
  std::uint64_t written_record_ = 0;
  std::uint64_t bytes_;
  std::uint64_t values_;
  std::uint64_t bytes_due_;
  std::uint64_t values_due_;
  std::uint64_t snapshots_ = 0;
  absl::Status last_snapshot_;
  bool snapshotting_ = false;
  std::optional<Parts> parts_;

  std::thread writer_;  // last: it uses all of the above
};

}  // namespace

absl::StatusOr<std::unique_ptr<Journal>> OpenEtcdJournal(std::unique_ptr<EtcdClient> client,
                                                         LeaderFence fence,
                                                         std::shared_ptr<LeaderTerm> term,
                                                         const EtcdJournalOptions& options,
                                                         const JournalReplay& replay) {
  auto log = EtcdLog::Open(*client, std::move(fence), replay);
  if (!log.ok()) return log.status();
  return std::make_unique<EtcdJournal>(std::move(client), *std::move(log), std::move(term),
                                       options);
}

}  // namespace ddprun
