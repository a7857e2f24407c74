// SPDX-License-Identifier: Apache-2.0
// A crash at a chosen system call, by ptrace.
#pragma once

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

namespace ddprun {

// `child` has asked to be traced (PTRACE_TRACEME) and has stopped itself. Lets it and its threads
// run for `stops` entries to and exits from system calls, then kills it. False: it ended before.
inline bool KillAfter(pid_t child, int stops) {
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return false;
  ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL);
  ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
  for (;;) {
    const pid_t stopped = waitpid(-1, &status, __WALL);
    if (stopped < 0) return false;
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      if (stopped == child) return false;
      continue;
    }
    if (stops-- == 0) break;
    ptrace(PTRACE_SYSCALL, stopped, nullptr, nullptr);
  }
  kill(child, SIGKILL);
  // The leader's end is told last.
  while (waitpid(-1, &status, __WALL) != child || !WIFSIGNALED(status)) {
  }
  return true;
}

}  // namespace ddprun
