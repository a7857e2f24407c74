// SPDX-License-Identifier: Apache-2.0
// What the kernel says about a process that SIGKILL did not end.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

namespace ddprun {

struct StuckProcess {
  pid_t pid = 0;
  std::string name;
  char state = '?';        // as in ps: D, Z, ...
  std::string tracer;      // "77 (gdb)", or empty
  std::string wait_point;  // the kernel's function it waits in, or empty
  std::string stack;       // the kernel's, a function a line; empty without the right to see it
};

// From the texts of /proc/PID/status, wchan and stack; any may be empty. Without the tracer's name.
// Pure.
StuckProcess ParseStuckProcess(pid_t pid, const std::string& status, const std::string& wchan,
                               const std::string& stack);

// One sentence, and the stack indented under it.
std::string ToText(const StuckProcess& process, std::chrono::seconds after_kill);

// Looked at now.
StuckProcess LookAtStuckProcess(pid_t pid);

}  // namespace ddprun
