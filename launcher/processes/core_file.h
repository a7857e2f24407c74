// SPDX-License-Identifier: Apache-2.0
// Where the core of a process that dumped one is, by the kernel's core_pattern (core(5)).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

namespace ddprun {

struct CoreQuestion {
  std::string pattern;    // /proc/sys/kernel/core_pattern, without its line end
  bool uses_pid = false;  // /proc/sys/kernel/core_uses_pid
  std::string folder;     // where the process ran
  pid_t pid = 0;
  int signal = 0;
  // The process was started then: an older file is another process's core.
  std::chrono::system_clock::time_point started{};
};

// The path that the pattern gives, with `*` for unknown parts (pure). Empty: it goes
// to a program.
std::string CorePathPattern(const CoreQuestion& question);

// The file's path, or the command that shows the core where a program collects cores; empty: there
// is none.
std::string FindCore(const CoreQuestion& question);

// The same for a worker of this process.
std::string FindCoreOf(pid_t pid, int signal, std::chrono::system_clock::time_point started);

}  // namespace ddprun
