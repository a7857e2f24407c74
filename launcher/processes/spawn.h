// SPDX-License-Identifier: Apache-2.0
// Starts processes and watches them through pidfds, where the kernel has them. Each process has its
// own session and process group, and a parent-death signal binds it to the thread that starts it.
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
  CpuSet cpus;                    // the CPUs to which it is bound; empty: as this process
  std::vector<int> memory_nodes;  // likewise
  sigset_t signal_mask;           // its initial mask
  int cgroup = -1;                // a folder: it starts in that cgroup if the kernel supports it
  int death_signal = SIGKILL;     // that it receives when the agent dies
  bool wrapped = false;           // another program than the other workers': not to be forked
};

struct Spawned {
  pid_t pid = 0;
  // Readable when the process has ended. Not valid: the kernel has no pidfds (before Linux 5.3), or
  // a container forbids them; then only SIGCHLD tells of the end.
  OwnedFd pidfd;
  std::optional<Outcome> outcome;  // absent while it runs; SpawnFailed: it never did
};

// Returns once the process executes its program. The disk of the program may delay that.
Spawned SpawnProcess(const SpawnRequest& request, const rlimit& file_limit);

class ForkServer;

// Starts processes on a thread of its own, so that a hung disk does not block the caller. The
// thread lives as long as this object, because the processes' parent-death signal is bound to it.
class Spawner {
 public:
  // `wake` is called on that thread when Take() has a result. `fork_server` forks the processes if
  // it can; absent: each is started by itself.
  explicit Spawner(std::function<void()> wake, std::shared_ptr<ForkServer> fork_server = nullptr);
  ~Spawner();
  Spawner(const Spawner&) = delete;
  Spawner& operator=(const Spawner&) = delete;

  // One batch at a time. The requests' descriptors must stay open until Take() has returned the
  // result.
  void Begin(std::vector<SpawnRequest> requests, const rlimit& file_limit);
  // Does not start the rest of the batch.
  void Cancel();
  // The processes of the batch, in its order. Absent: the batch is not complete.
  std::optional<std::vector<Spawned>> Take();

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object
};

class ProcessSet {
 public:
  // Processes inherit this process's current limit of open files.
  ProcessSet() { getrlimit(RLIMIT_NOFILE, &file_limit_); }

  // Starts one more process. On failure its outcome is set at once. The calling thread must live as
  // long as this process: the kernel binds the parent-death signal to it.
  void Spawn(const SpawnRequest& request) {
    processes_.push_back(SpawnProcess(request, file_limit_));
  }
  // Takes over a process that a Spawner has started. One that was killed and reaped as an orphan,
  // before its spawner returned it, has ended by SIGKILL.
  void Adopt(std::size_t index, Spawned spawned);
  // There is no process of that number any more, or none yet.
  void Vacate(std::size_t index) { Adopt(index, {}); }
  void Swap(std::size_t a, std::size_t b) { std::swap(processes_[a], processes_[b]); }
  const rlimit& file_limit() const { return file_limit_; }

  std::size_t size() const { return processes_.size(); }
  bool IsLive(std::size_t index) const {
    return index < size() && processes_[index].pid > 0 && !processes_[index].outcome.has_value();
  }
  pid_t pid(std::size_t index) const { return processes_[index].pid; }
  // Readable when the process has ended; -1 once it was reaped, and without pidfds.
  int pidfd(std::size_t index) const { return processes_[index].pidfd.get(); }
  // Absent while it runs.
  const std::optional<Outcome>& outcome(std::size_t index) const {
    return processes_[index].outcome;
  }

  // Its outcome, if it has ended; does not reap it.
  std::optional<Outcome> Look(std::size_t index) const;

  // If the process has ended: kills what is left of its process group, reaps it, and sets its
  // outcome. `spares_group`: only if it failed.
  bool ReapIfEnded(std::size_t index, bool spares_group = false);

  // Sends a signal to the process group of a process that is not reaped, whose number cannot have
  // been reused.
  void SignalGroup(std::size_t index, int signal);
  // Sends it to this process alone.
  void SignalProcess(std::size_t index, int signal);

 private:
  rlimit file_limit_{};
  std::vector<Spawned> processes_;
};

}  // namespace ddprun
