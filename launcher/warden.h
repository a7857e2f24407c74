// SPDX-License-Identifier: Apache-2.0
// The process that a person started: it does nothing but keep watch over the agent, its only child,
// so that nothing of a run outlives ddprun, however the agent ends.
#pragma once

#include <csignal>
#include <functional>
#include <string>

namespace ddprun {

struct Warden {
  sigset_t end_signals;  // passed on to the agent
  int lifeline = -1;     // its end must end the agent; -1: there is none
  std::string temp_dir;  // removed at the end, empty or not
  // Called in the warden once the agent exists: what only the agent needs is not kept twice.
  std::function<void()> forget;
  // Called when a signal has ended the agent, after its workers: the other nodes need not find out.
  // `how`: "killed by signal 9 (SIGKILL)".
  std::function<void(const std::string& how)> on_agent_killed;
};

// Forks, runs `agent` in the child (its answer is the exit code), and returns in the parent once
// the agent and every descendant are gone: the agent's exit code, or 128 + the signal that ended
// it. Must be called while the process has one thread; signals must be blocked already. The child
// is given a pidfd of the warden, readable once it is gone.
int RunUnderWarden(const Warden& warden, const std::function<int(int warden_pidfd)>& agent);

}  // namespace ddprun
