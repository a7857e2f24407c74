// SPDX-License-Identifier: Apache-2.0
// The workers of a node as processes: each in a session and process group of its own, bound to the
// agent's life by a parent-death signal, watched through a pidfd.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/outcome.h"
#include "launcher/placement/topology.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {

struct SpawnRequest {
  std::string path;  // absolute, or relative to the working folder; PATH is not searched
  std::vector<std::string> argv;
  std::vector<std::string> environ;  // NAME=VALUE
  int in = -1;                       // -1: the agent's own
  int out = -1;
  int err = -1;
  CpuSet cpus;                    // it is bound to them; empty: as this process
  std::vector<int> memory_nodes;  // and to these
  sigset_t signal_mask;           // the worker starts with it
  int cgroup = -1;                // a folder: it starts in there, where the kernel allows it
  int death_signal = SIGKILL;     // that it gets when the agent dies
};

// The calling thread must live as long as the agent: the kernel binds the parent-death signal to
// it.
class ProcessSet {
 public:
  // Processes get the limit of open files that this one has now.
  ProcessSet() { getrlimit(RLIMIT_NOFILE, &file_limit_); }

  // Starts one more process. What prevented it is in the outcome of that index, at once.
  void Spawn(const SpawnRequest& request);

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
  struct Process {
    pid_t pid = 0;
    OwnedFd pidfd;
    std::optional<Outcome> outcome;
  };

  rlimit file_limit_{};
  std::vector<Process> processes_;
};

}  // namespace ddprun
