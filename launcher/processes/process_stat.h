// SPDX-License-Identifier: Apache-2.0
// What the kernel reports about a process in /proc/PID.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// True if the kernel is already ending the process: it writes a core, or has closed its files
// without having notified its parent. Peers may have seen the connection close by then. `stat`: the
// text of /proc/PID/stat, whose ninth field has PF_EXITING and PF_DUMPCORE of Linux's
// include/linux/sched.h. Only the first thread counts. Pure.
bool SaysEnding(absl::string_view stat);

// Reads /proc/PID/stat. False if the process does not exist.
bool IsEnding(pid_t pid);

// True if the process has a handler for the signal. `status`: the text of /proc/PID/status. Pure.
bool SaysHandled(absl::string_view status, int signal);

// Reads /proc/PID/status. False if the process does not exist.
bool HandlesSignal(pid_t pid, int signal);

// The CPU time that all its threads have used, user and system, in seconds. Reads /proc/PID/stat,
// also of a process that has ended and was not waited for. 0 if it does not exist.
double CpuSecondsOf(pid_t pid);

// Its resident memory, in bytes. 0 if the process does not exist.
std::int64_t ResidentBytesOf(pid_t pid);

// 0 if the process does not exist.
pid_t ParentOf(pid_t pid);

// "python3 upload.py (pid 12)": its command line, or its name if it has none, cut to a line.
std::string NameOfProcess(pid_t pid);

struct StuckProcess {
  pid_t pid = 0;
  std::string name;
  char state = '?';        // as in ps: D, Z, ...
  std::string tracer;      // "77 (gdb)", or empty
  std::string wait_point;  // the kernel function in which it waits, or empty
  std::string stack;       // the kernel's, one function per line; empty without permission
};

// A process that SIGKILL did not end. From the texts of /proc/PID/status, wchan and stack; any may
// be empty. Without the tracer's name. Pure.
StuckProcess ParseStuckProcess(pid_t pid, const std::string& status, const std::string& wchan,
                               const std::string& stack);

// One sentence, and the stack indented under it.
std::string ToText(const StuckProcess& process, std::chrono::seconds after_kill);

// Reads /proc/PID.
StuckProcess LookAtStuckProcess(pid_t pid);

}  // namespace ddprun
