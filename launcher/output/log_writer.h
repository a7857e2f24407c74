// SPDX-License-Identifier: Apache-2.0
// Writes files on a thread of its own, so that a slow, full or hung disk delays nothing else. The
// backlog is limited; beyond that whole lines are left out, and counted in the file.
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
    std::size_t queue_bytes_max = 0;              // of all files together
    std::chrono::milliseconds retry_interval{0};  // after the disk has refused
    const char* subject = "the log files";        // of the sentences in TakeNotices()
  };

  // The thread begins with the first file, and ends when the last copy of this pointer goes, which
  // waits for nothing: call Flush() before. The object itself lives as long as its thread, which
  // may hang in the kernel.
  static std::shared_ptr<LogWriter> Make(const Limits& limits);
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // A number for Append(). Nothing has happened on the disk yet.
  int Add(std::unique_ptr<LogFile> file);

  // Whether all files are open: OK, or why one of them cannot be. Absent: a disk has not answered
  // yet; notice_fd() becomes readable when it has.
  std::optional<absl::Status> Opened();
  // The caller continues although they are not open: what is written waits for the disk, and a
  // notice reports that the disk has not answered for `waited`.
  void GoOnUnopened(std::chrono::milliseconds waited);

  // Never waits.
  void Append(int file, std::string_view bytes);

  // Closed once all that waits is written.
  void Close(int file);

  // False: `stall_timeout` has gone by without a byte written, or `timeout` in all, or
  // `interrupt_fd` is readable (-1: nothing interrupts); the rest still waits.
  bool Flush(std::chrono::milliseconds stall_timeout, std::chrono::milliseconds timeout,
             int interrupt_fd = -1);

  // For sentences of others, from any thread: they are shown like this object's own, and dropped
  // once it is gone.
  std::function<void(const std::string&)> NoticeSink();

  // Readable while there are sentences.
  int notice_fd() const { return notice_.fd(); }
  // Those since the last call: a disk refuses, or accepts again.
  std::vector<std::string> TakeNotices();

  // Left out so far, of all files.
  std::uint64_t lost_lines();
  std::uint64_t waiting_bytes();

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;

  explicit LogWriter(const Limits& limits) : limits_(limits) {}
  void Stop();

  struct Entry {
    std::unique_ptr<LogFile> file;  // touched by the thread alone, without the lock
    LineGap gap;
    std::string waiting;  // behind `refused`
    std::string refused;  // what the disk has not taken the last time
    std::optional<absl::Status> opened;
    bool closing = false;
    Clock::time_point retry_time;  // after a refusal

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
  std::condition_variable work_;  // the thread waits for it
  std::condition_variable done_;  // Flush() waits for the thread
  std::map<int, Entry> entries_;  // nodes stay where they are while others come and go
  int next_number_ = 0;
  int last_served_ = -1;
  bool started_ = false;
  bool stopping_ = false;
  bool refused_ = false;  // reported; until the disk takes something
  bool losing_ = false;   // reported; until half of the queue is free
  std::size_t queued_bytes_ = 0;
  std::uint64_t written_bytes_ = 0;
  std::uint64_t lost_lines_ = 0;  // of files that are closed
  std::vector<std::string> notices_;
};

}  // namespace ddprun
