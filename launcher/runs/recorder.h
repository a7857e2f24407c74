// SPDX-License-Identifier: Apache-2.0
// The process beside a detached run: it starts the run with pipes for its output, records that and
// what the run reports, forwards signals, and writes down how it ended. The run does not outlive
// it: it gets SIGTERM where its recorder is killed.
//
// Where the disk accepts nothing, the recorder stops reading, and the run's console drops lines and
// counts them as with any slow reader: no worker waits.
#pragma once

#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <variant>

#include "launcher/runs/event_record.h"
#include "launcher/runs/output_record.h"
#include "launcher/runs/run_folder.h"
#include "launcher/runs/run_record.h"
#include "launcher/runs/run_report.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {

class Recorder {
 public:
  // `starter`: a pipe to the process that the user started, which is told when the run has begun or
  // ended. Where that process ends before either, it has given up: so does the run.
  Recorder(RunFolder folder, RunRecord record, OwnedFd starter);

  // Forks, while the process has one thread. An int: in this process, the run has ended and is
  // recorded. A RunReport: in the new process, which is to become the run. `forget` is called in
  // this process once that exists: data that only the run needs is freed.
  std::variant<int, RunReport> Run(const std::function<void()>& forget);

 private:
  struct Pipe {
    OwnedFd ours;
    OwnedFd theirs;
  };
  static bool Open(Pipe& pipe);
  RunReport BecomeRun(pid_t recorder, const sigset_t& mask);
  void Loop();
  void Turn(int timeout_ms);
  void HandleSignals();
  void ReadReport();
  bool ReadOutput(const OwnedFd& pipe, FrameKind kind);
  void WriteOutput();
  bool Drained();
  void Save();
  void Tell(FrameKind kind, const std::string& bytes);
  void Finish();

  RunFolder folder_;
  RunRecord record_;
  OwnedFd starter_;
  OutputWriter output_;
  EventRecord events_;
  EventRecord samples_;
  EventRecord steps_;
  std::string step_lines_;  // that are not complete
  Pipe out_;
  Pipe err_;
  Pipe report_;
  FrameParser reports_;
  OwnedFd signals_;
  pid_t run_ = 0;
  std::optional<int> wait_status_;
  std::string verdict_;
  std::string last_error_;  // what it wrote to stderr last, before its first round
  std::string verdict_json_;
  std::string refusal_;  // why the disk accepts nothing now; empty: it does
};

}  // namespace ddprun
