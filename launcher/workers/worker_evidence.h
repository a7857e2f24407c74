// SPDX-License-Identifier: Apache-2.0
// The data that a dead worker has left on disks, its failure record and its core file, for the
// report of the failure. Disks are read on other threads; events keep their order and wait for a
// disk only briefly.
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
  std::string folder;     // the working folder of the process
  pid_t pid = 0;
  int signal = 0;
  // The start of the process: older files are not its core.
  std::chrono::system_clock::time_point started{};
};

// The path of the core by the pattern, with `*` for unknown parts. Empty: the kernel pipes the core
// to a program. Pure.
std::string CorePathPattern(const CoreQuestion& question);

// The path of the core, or the command that shows it if a program collects cores; empty: none.
std::string FindCore(const CoreQuestion& question);

// The same for a worker of this process.
std::string FindCoreOf(pid_t pid, int signal, std::chrono::system_clock::time_point started);

class WorkerEvidence {
 public:
  struct Question {
    std::string
        record_file;  // where the worker leaves its failure record (TORCHELASTIC_ERROR_FILE)
    // The start of a worker that dumped core (older files are not its core).
    std::optional<std::chrono::system_clock::time_point> core_of_start = std::nullopt;
    int signal = 0;
    std::optional<double> cpu_seconds = std::nullopt;  // that it used
    bool is_python = false;
  };
  // Receives the bytes of each failure record that was found.
  using KeepRecord = std::function<void(int local_rank, const std::string& record)>;

  WorkerEvidence(const Background& background, KeepRecord keep_record)
      : background_(background), keep_record_(std::move(keep_record)) {}

  // Adds an event that needs no data. It follows the waiting events.
  void Add(Event event);
  // Adds an event that gets message, traceback and core file.
  void Add(WorkerEnded ended, Question question, TimePoint now);

  // Where the ranks wait, for the failures among the waiting events.
  void SetPlaces(const std::vector<RanksInPlace>& places);
  // Appends the events that are complete or have reached their deadline, in the order of Add().
  void Release(TimePoint now, std::vector<Event>& events);
  std::optional<TimePoint> NextDeadline() const;
  bool empty() const { return waiting_.empty(); }

 private:
  struct Found {
    FailureRecord record;
    std::string record_bytes;
    std::string core_file;
    EndEvidence evidence;
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
