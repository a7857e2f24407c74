// SPDX-License-Identifier: Apache-2.0
// The ranks of a test, as processes or as threads.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "proto/worker_env.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {

// Runs `body` as each rank in a process of its own, as in a real run: LibTorch's process groups
// share globals (the flight recorder's table of groups, for one) without locks. The processes are
// this program again, told to run the current test only and who they are through the worker's
// environment. In the test's own process it starts them with `env_of(rank)`, waits, and fails for
// each that did not end well, with what it said.
void RunProcesses(int size, const std::function<WorkerEnv(int rank)>& env_of,
                  const std::function<void(const WorkerEnv&)>& body);

// True in a rank's process: it must not start what only the test's own process needs.
bool IsRankProcess();

// Runs `body` as each rank in a thread, where no process group is built. What each threw; empty for
// one that did not.
std::vector<std::string> RunThreads(int size, const std::function<void(int rank)>& body);

// A port of 127.0.0.1 that the system gives to nobody else while this lives, and on which a server
// that sets SO_REUSEADDR, as TCPStore does, may listen. Ranks' processes reserve none: port() is 0.
class ReservedPort {
 public:
  ReservedPort();
  int port() const { return port_; }

 private:
  OwnedFd socket_;
  int port_ = 0;
};

// As if started by hand on one node, with the store at `port`.
WorkerEnv EnvByHand(int rank, int size, int port);

}  // namespace ddprun
