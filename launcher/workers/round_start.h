// SPDX-License-Identifier: Apache-2.0
// Starts the workers of a round, in steps that may each wait for a disk: makes the log folder,
// opens the log files, tells the round to workers that are kept, and starts the others.
#pragma once

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/base/background.h"
#include "launcher/output/log_plan.h"
#include "launcher/processes/cgroup.h"
#include "launcher/processes/fork_server.h"
#include "launcher/processes/spawn.h"
#include "launcher/workers/node_config.h"
#include "launcher/workers/worker_requests.h"
#include "launcher/workers/worker_table.h"

namespace ddprun {

class RoundStart {
 public:
  enum class Step { kNone, kLogFolder, kLogFiles, kProcesses };
  struct Started {
    int local_rank = 0;
    Spawned process;
  };

  // All must outlive this object. `fork_server`: absent without --preload.
  RoundStart(const NodeConfig& config, WorkerTable& table, WorkerRequests& requests,
             WorkerCgroup& cgroup, Console& console, const Background& background,
             std::shared_ptr<ForkServer> fork_server);

  // Begins with the first step; OnTurn() goes on. An error ends the start, here and there.
  absl::Status Begin(TimePoint now);
  // The processes that were started, once all steps are done. Absent: not yet, or no start is under
  // way.
  absl::StatusOr<std::optional<std::vector<Started>>> OnTurn(TimePoint now);
  std::optional<TimePoint> NextDeadline() const { return deadline_; }

  Step step() const { return step_; }
  bool is_underway() const { return step_ != Step::kNone; }
  // Does not start processes that wait for something; those that were started are still returned.
  void Cancel() { spawner_.Cancel(); }
  // No process is started, or those that were are not wanted.
  void GiveUp();
  void ReportStuck();

  // A file of the rank's log folder; empty: the round has no files.
  std::string RankFile(int local_rank, const char* name) const;

 private:
  absl::Status TakeLogFolder(TimePoint now);
  absl::Status OpenLogs(TimePoint now);
  absl::Status TakeLogFiles(TimePoint now);
  void StartProcesses(TimePoint now);
  void TellRound(int local_rank);
  void ReportLateStart();
  std::string WhatIsLate() const;

  const NodeConfig& config_;
  WorkerTable& table_;
  WorkerRequests& requests_;
  WorkerCgroup& cgroup_;
  Console& console_;
  const Background& background_;
  const std::shared_ptr<ForkServer> fork_server_;
  Spawner spawner_;

  Step step_ = Step::kNone;
  // To go on without an answer; in the last step, to print a note.
  std::optional<TimePoint> deadline_;
  std::future<absl::StatusOr<std::string>> log_folder_;
  bool log_folder_made_ = false;  // its path is to be shown
  LogRound log_round_;
  LogPlan log_plan_;
  std::vector<LogMux::WriteEnds> write_ends_;  // of the pipes, until the workers are started
  std::vector<int> batch_;                     // the local ranks that are being started
  OwnedFd batch_cgroup_;
};

}  // namespace ddprun
