// SPDX-License-Identifier: Apache-2.0
// The guards of the agent, so that no process of a run outlives ddprun, however ddprun ends: the
// warden, which is the process that the user started, and the keeper between it and the agent. All
// three are subreapers: they inherit orphaned descendants and kill them. One survivor suffices.
#pragma once

#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "launcher/processes/cgroup.h"

namespace ddprun {

struct Warden {
  sigset_t passed_signals;           // forwarded to the agent
  int control_pipe = -1;             // the agent must end when it reaches end of file; -1: none
  std::vector<std::string> folders;  // removed at the end, empty or not
  // The memory of argv. The keeper overwrites it, so that `pkill -9 ddprun` (or -f) does not kill
  // all three at once.
  absl::Span<char> command_line;
  const RunCgroup* cgroup = nullptr;  // emptied and removed at the end
  // Called in the warden and the keeper once the agent exists: data that only the agent needs is
  // freed there.
  std::function<void()> forget;
  // Called when a signal has ended the agent, once its workers have ended, to inform the other
  // nodes. `how`: "killed by signal 9 (SIGKILL)".
  std::function<void(const std::string& how)> on_agent_killed;
};

// Runs `agent` in a process of its own, with its return value as exit code, and returns in this
// process once the agent and all descendants have ended: the agent's exit code, or 128 + the signal
// that ended it. Must be called while the process has one thread; signals must be blocked already.
// The agent gets a descriptor for each guard, which is readable once that guard has ended.
int RunUnderWarden(const Warden& warden,
                   const std::function<int(std::vector<int> guard_fds)>& agent);

}  // namespace ddprun
