// SPDX-License-Identifier: Apache-2.0
// Writes files on a thread of its own, so that a slow, full or hung disk delays nothing else. The
// backlog is limited; beyond that whole lines are left out, and counted in the file.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "launcher/output/log_file.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {

class LogWriter {
 public:
  struct Limits {
    std::size_t queue_bytes_max = 0;              // of all files together
    std::chrono::milliseconds retry_interval{0};  // after the disk has refused
    const char* subject = "the log files";        // of the sentences in TakeNotices()
  };

  // The thread begins with the first file.
  explicit LogWriter(const Limits& limits);
  // Waits for nothing: call Flush() before.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // A number for Append(). Nothing has happened on the disk yet.
  int Add(std::unique_ptr<LogFile> file);

  // Whether all files are open: OK, or why one of them cannot be. Absent: a disk has not answered
  // yet; notice_fd() becomes readable when it has.
  std::optional<absl::Status> Opened() const;
  // The caller goes on although they are not open: what is written waits for the disk, and a notice
  // says that it has not answered for so long.
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
  std::function<void(const std::string&)> NoticeSink() const;

  // Readable while there are sentences.
  int notice_fd() const;
  // What people should know since the last call: that a disk refuses, and takes again.
  std::vector<std::string> TakeNotices();

  // Left out so far, of all files.
  std::uint64_t lost_lines() const;
  std::uint64_t waiting_bytes() const;

 private:
  class Core;
  // Shared with the thread, which may hang in the kernel longer than this object lives.
  std::shared_ptr<Core> core_;
};

}  // namespace ddprun
