// SPDX-License-Identifier: Apache-2.0
// The guards of the agent, so that nothing of a run outlives ddprun, however it ends: the warden,
// which is the process that the user started, and the keeper between it and the agent. All three
// inherit orphans below them and end them; one that is left suffices.
#pragma once

#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "launcher/processes/cgroup.h"

namespace ddprun {

struct Warden {
  sigset_t passed_signals;  // passed on to the agent
  int control_pipe = -1;    // its end must end the agent; -1: there is none
  std::string temp_dir;     // removed at the end, empty or not
  // The memory of the command line, as main() got it: the keeper writes another one there, so that
  // a `pkill -9 ddprun` (or -f) does not take all three at once.
  absl::Span<char> command_line;
  const RunCgroup* cgroup = nullptr;  // emptied and removed at the end
  // Called in the warden and the keeper once the agent exists: what only the agent needs is not
  // kept thrice.
  std::function<void()> forget;
  // Called when a signal has ended the agent, after its workers: the other nodes need not find out.
  // `how`: "killed by signal 9 (SIGKILL)".
  std::function<void(const std::string& how)> on_agent_killed;
};

// Runs `agent` in a process of its own (its answer is the exit code), and returns in this one once
// the agent and every descendant are gone: the agent's exit code, or 128 + the signal that ended
// it. Must be called while the process has one thread; signals must be blocked already. The agent
// is given a pidfd of each of its guards, readable once that one is gone.
int RunUnderWarden(const Warden& warden,
                   const std::function<int(std::vector<int> guard_pidfds)>& agent);

}  // namespace ddprun
