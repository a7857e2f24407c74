// SPDX-License-Identifier: Apache-2.0
// What a dead worker has left on disks: its failure record, its core file. The one place where a
// node collects what a failure is reported with. Disks are read on threads of their own; events
// keep their order, and wait for a disk only briefly.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/background.h"
#include "launcher/supervisor/supervisor.h"
#include "proto/failure_record.h"

namespace ddprun {

struct CoreQuestion {
  std::string pattern;    // /proc/sys/kernel/core_pattern, without its line end
  bool uses_pid = false;  // /proc/sys/kernel/core_uses_pid
  std::string folder;     // where the process ran
  pid_t pid = 0;
  int signal = 0;
  // The process was started then: an older file is another process's core.
  std::chrono::system_clock::time_point started{};
};

// The path that the pattern gives, with `*` for unknown parts (pure). Empty: it goes
// to a program.
std::string CorePathPattern(const CoreQuestion& question);

// The file's path, or the command that shows the core where a program collects cores; empty: there
// is none.
std::string FindCore(const CoreQuestion& question);

// The same for a worker of this process.
std::string FindCoreOf(pid_t pid, int signal, std::chrono::system_clock::time_point started);

class WorkerEvidence {
 public:
  struct Question {
    std::string
        record_file;  // where the worker leaves its failure record (TORCHELASTIC_ERROR_FILE)
    // Of a worker that dumped core: when it was started (older files are not its own).
    std::optional<std::chrono::system_clock::time_point> core_of_start = std::nullopt;
    int signal = 0;
  };
  // Gets the bytes of each failure record that was found.
  using KeepRecord = std::function<void(int local_rank, const std::string& record)>;

  WorkerEvidence(const Background& background, KeepRecord keep_record)
      : background_(background), keep_record_(std::move(keep_record)) {}

  // An event to which nothing is added. It follows those that wait.
  void Add(Event event);
  // `ended` gets message, traceback and core file.
  void Add(WorkerEnded ended, Question question, TimePoint now);

  // Appends what is complete, or has waited until its deadline, in the order of Add().
  void Release(TimePoint now, std::vector<Event>& events);
  std::optional<TimePoint> NextDeadline() const;
  bool empty() const { return waiting_.empty(); }

 private:
  struct Found {
    FailureRecord record;
    std::string record_bytes;
    std::string core_file;
  };
  struct Waiting {
    Event event;
    std::future<Found> call;  // not valid: nothing is waited for
    TimePoint deadline;
  };
  static Found Read(const Question& question, pid_t pid);

  const Background& background_;
  const KeepRecord keep_record_;
  std::deque<Waiting> waiting_;
  bool core_folder_hangs_ = false;
};

}  // namespace ddprun
