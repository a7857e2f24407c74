// SPDX-License-Identifier: Apache-2.0
// Writes files on a thread of its own, so that a slow, full or hung disk does not block the caller.
// The backlog is limited; beyond that whole lines are dropped, and their number is written to the
// file.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "launcher/output/log_file.h"
#include "launcher/output/log_rotation.h"
#include "rendezvous/base/event_fd.h"

namespace ddprun {

class LogWriter : public std::enable_shared_from_this<LogWriter> {
 public:
  struct Limits {
    std::size_t queue_bytes_max = 0;              // of all files
    std::chrono::milliseconds retry_interval{0};  // after a failed write
    const char* subject = "the log files";        // the subject of the sentences in TakeNotices()
  };

  // The thread starts with the first file and ends after the last copy of this pointer is
  // destroyed, which does not wait: call Flush() before. The object lives as long as its thread,
  // which may hang in the kernel.
  static std::shared_ptr<LogWriter> Make(const Limits& limits);
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // Returns a number for Append(). Does not access the disk.
  int Add(std::unique_ptr<LogFile> file);

  // OK if all files are open, or why one cannot be opened. Absent: a disk has not answered yet;
  // notice_fd() becomes readable when it has.
  std::optional<absl::Status> Opened();
  // The caller continues although files are not open: output is queued, and a notice reports that
  // the disk has not answered for `waited`.
  void GoOnUnopened(std::chrono::milliseconds waited);

  // Never waits.
  void Append(int file, std::string_view bytes);

  // Closes the file once all queued output is written.
  void Close(int file);

  // False: `stall_timeout` has passed without progress, `timeout` has passed in total, or
  // `interrupt_fd` is readable (-1: none); the rest stays queued.
  bool Flush(std::chrono::milliseconds stall_timeout, std::chrono::milliseconds timeout,
             int interrupt_fd = -1);

  // Accepts sentences of other objects from any thread, to be shown as this object's own; drops
  // them once this object is destroyed.
  std::function<void(const std::string&)> NoticeSink();

  // Readable while there are notices.
  int notice_fd() const { return notice_.fd(); }
  // The notices since the last call: a disk rejects writes, or accepts them again.
  std::vector<std::string> TakeNotices();

  // Adds notices about queued bytes, unless Flush() was `complete`, and about dropped lines. False:
  // nothing is missing.
  bool NoteMissing(bool complete);

  // Dropped so far, of all files.
  std::uint64_t lost_lines();
  std::uint64_t waiting_bytes();

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;

  explicit LogWriter(const Limits& limits) : limits_(limits) {}
  void Stop();

  struct Entry {
    std::unique_ptr<LogFile> file;  // used by the thread alone, without the lock
    LineGap gap;
    std::string waiting;  // follows `refused`
    std::string refused;  // the rest of the last write, which the disk rejected
    std::optional<absl::Status> opened;
    bool closing = false;
    Clock::time_point retry_time;  // after a rejected write

    bool HasWork() const {
      return !opened.has_value() || !waiting.empty() || !refused.empty() || closing;
    }
  };
  void Run();
  void Serve(Lock& lock, int number);
  void Note(std::string sentence);
  void NoteRefusal(const absl::Status& status);
  std::optional<int> NextWithWork(std::optional<Clock::time_point>& wake_time);
  bool AllOpen() const;

  const Limits limits_;
  const EventFd notice_;
  std::mutex mutex_;
  std::condition_variable work_;  // wakes the thread
  std::condition_variable done_;  // wakes Flush()
  std::map<int, Entry> entries_;  // a map, whose nodes do not move
  int next_number_ = 0;
  int last_served_ = -1;
  bool started_ = false;
  bool stopping_ = false;
  bool refused_ = false;  // reported; until the next successful write
  bool losing_ = false;   // reported; until half of the queue is free
  std::size_t queued_bytes_ = 0;
  std::uint64_t written_bytes_ = 0;
  std::uint64_t lost_lines_ = 0;  // of closed files
  std::vector<std::string> notices_;
};

}  // namespace ddprun
