// SPDX-License-Identifier: Apache-2.0
// Starting a process: in a session and process group of its own, bound to the life of the thread
// that starts it by a parent-death signal.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <csignal>
#include <functional>
#include <memory>
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

}  // namespace ddprun
