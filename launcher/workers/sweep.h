// SPDX-License-Identifier: Apache-2.0
// Ends the processes that a round's workers leave behind, also in other sessions: all of them are
// this process's children by then, and no process of a round may survive into the next one, but
// workers that are kept.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "launcher/processes/cgroup.h"
#include "launcher/processes/fork_server.h"
#include "launcher/processes/orphans.h"
#include "launcher/supervisor/supervisor.h"
#include "launcher/workers/worker_table.h"

namespace ddprun {

class Sweep {
 public:
  // The table must outlive this object. `fork_server`: absent without --preload.
  Sweep(WorkerTable& table, std::shared_ptr<ForkServer> fork_server)
      : table_(table), fork_server_(std::move(fork_server)) {}

  // For new workers.
  WorkerCgroup& cgroup() { return cgroup_; }

  // All workers of the round have ended or left it. True: nothing is left, or it is given up; else
  // to be called again at NextDeadline(), since giving up a process that hangs in the kernel may
  // take longer than the lease. `grace`: of the first call, see LeftoverStages. `kept`: workers
  // live on in the cgroup.
  bool Run(std::optional<std::chrono::milliseconds> grace, bool kept, TimePoint now,
           std::vector<Event>& events);
  std::optional<TimePoint> NextDeadline() const { return next_; }
  // The round is over.
  void End(bool kept);

  // The workers get this signal, and so does what they have left behind.
  void OnStop(int signal, TimePoint now);
  // Sends SIGKILL to all processes that nobody knows: only the spawner knows one that waits for its
  // program's disk.
  void KillStrangers();
  // Reaps those that have ended.
  void ReapStrangers();
  // `own`: of the agent's own processes, which are reaped elsewhere, each or 0.
  void Spare(const std::array<pid_t, 3>& own) { own_ = own; }

 private:
  ForkServerMatch MatchForkServer(pid_t pid) const;
  bool IsKnown(pid_t pid) const {
    return std::count(own_.begin(), own_.end(), pid) > 0 || table_.HasProcess(pid);
  }
  std::optional<std::vector<pid_t>> Strangers() const;

  WorkerTable& table_;
  const std::shared_ptr<ForkServer> fork_server_;
  WorkerCgroup cgroup_;                   // while there are workers
  std::optional<LeftoverStages> stages_;  // since all workers have ended or left
  std::optional<TimePoint> next_;
  std::array<pid_t, 3> own_{};
};

}  // namespace ddprun
