// SPDX-License-Identifier: Apache-2.0
// Starts processes and watches them through pidfds. Each process has its own session and process
// group, and a parent-death signal binds it to the thread that starts it.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
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
  CpuSet cpus;                    // to bind it to; empty: as this process
  std::vector<int> memory_nodes;  // likewise
  sigset_t signal_mask;           // it starts with this one
  int cgroup = -1;                // a folder: it starts in there, where the kernel allows it
  int death_signal = SIGKILL;     // that it gets when the agent dies
};

struct Spawned {
  pid_t pid = 0;
  OwnedFd pidfd;                   // readable when the process has ended
  std::optional<Outcome> outcome;  // absent while it runs; SpawnFailed: it never did
};

// Returns once the process executes its program, which the program's disk may delay.
Spawned SpawnProcess(const SpawnRequest& request, const rlimit& file_limit);

// Starts processes on a thread of its own, so that a disk that does not answer holds nothing else
// up. The thread lives as long as this object: the processes' parent-death signal is bound to it.
class Spawner {
 public:
  // `wake` is called on that thread when Take() has something.
  explicit Spawner(std::function<void()> wake);
  ~Spawner();
  Spawner(const Spawner&) = delete;
  Spawner& operator=(const Spawner&) = delete;

  // One batch at a time. The requests' descriptors must stay open until Take() has returned the
  // result.
  void Begin(std::vector<SpawnRequest> requests, const rlimit& file_limit);
  // What has not been started of the batch never is.
  void Cancel();
  // Of the batch, in its order. Absent: it is not complete.
  std::optional<std::vector<Spawned>> Take();

 private:
  struct State;
  std::shared_ptr<State>
      state_;  // shared with the thread, which may hang longer than this object lives
};

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
