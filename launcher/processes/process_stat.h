// SPDX-License-Identifier: Apache-2.0
// What the kernel reports about a process in /proc/PID.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// Whether the kernel is ending the process already: it writes a core, or has closed its files and
// not notified its parent yet. Peers may have seen the connection close by then. From the text of
// the file, whose ninth field has PF_EXITING and PF_DUMPCORE of Linux's include/linux/sched.h. Of
// several threads the first one counts. Pure.
bool SaysEnding(absl::string_view stat);

// Looked at now. False for a process that is not there.
bool IsEnding(pid_t pid);

// 0 for a process that is not there.
pid_t ParentOf(pid_t pid);

struct StuckProcess {
  pid_t pid = 0;
  std::string name;
  char state = '?';        // as in ps: D, Z, ...
  std::string tracer;      // "77 (gdb)", or empty
  std::string wait_point;  // the kernel's function it waits in, or empty
  std::string stack;       // the kernel's, a function a line; empty without the right to see it
};

// A process that SIGKILL did not end. From the texts of /proc/PID/status, wchan and stack; any may be empty. Without the tracer's name.
// Pure.
StuckProcess ParseStuckProcess(pid_t pid, const std::string& status, const std::string& wchan,
                               const std::string& stack);

// One sentence, and the stack indented under it.
std::string ToText(const StuckProcess& process, std::chrono::seconds after_kill);

// Looked at now.
StuckProcess LookAtStuckProcess(pid_t pid);

}  // namespace ddprun
