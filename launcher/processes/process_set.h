// SPDX-License-Identifier: Apache-2.0
// The processes of a node's workers, watched through pidfds.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <csignal>
#include <optional>
#include <utility>
#include <vector>

#include "launcher/base/outcome.h"
#include "launcher/processes/spawn.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {

class ProcessSet {
 public:
  // Processes get the limit of open files that this one has now.
  ProcessSet() { getrlimit(RLIMIT_NOFILE, &file_limit_); }

  // Starts one more process. What prevented it is in the outcome of that index, at once. The
  // calling thread must live as long as this process: the kernel binds the parent-death signal to
  // it.
  void Spawn(const SpawnRequest& request) {
    processes_.push_back(SpawnProcess(request, file_limit_));
  }
  // Takes over what a Spawner has started.
  void Adopt(std::vector<Spawned> spawned) { processes_ = std::move(spawned); }
  const rlimit& file_limit() const { return file_limit_; }

  void Clear() { processes_.clear(); }
  std::size_t size() const { return processes_.size(); }
  bool AnyLive() const;
  pid_t pid(std::size_t index) const { return processes_[index].pid; }
  // Readable when the process has ended; -1 once it was reaped.
  int pidfd(std::size_t index) const { return processes_[index].pidfd.get(); }
  // Absent while it runs.
  const std::optional<Outcome>& outcome(std::size_t index) const {
    return processes_[index].outcome;
  }

  // How it ended, if it has: it is still a zombie and can be looked at.
  std::optional<Outcome> Look(std::size_t index) const;

  // If the process has ended: kills what is left of its process group, reaps it, and sets its
  // outcome.
  bool ReapIfEnded(std::size_t index);

  // To the process group of every process that is not reaped: its number cannot have been given to
  // another one.
  void SignalGroups(int signal);
  void SignalGroup(std::size_t index, int signal);  // likewise, to one
  // To those processes alone.
  void SignalProcesses(int signal);

 private:
  rlimit file_limit_{};
  std::vector<Spawned> processes_;
};

}  // namespace ddprun
