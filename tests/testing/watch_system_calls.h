// SPDX-License-Identifier: Apache-2.0
// The system calls of a process and its threads, by ptrace, and the files that they are about: for
// tests of what a crash of the machine would find.
#pragma once

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <optional>
#include <string>

namespace ddprun {

using OnSystemCall = std::function<void(const __ptrace_syscall_info& call, pid_t thread)>;

// `child` has asked to be traced (PTRACE_TRACEME) and has stopped itself. Lets it and its threads
// run to their end, and calls `on_entry` before each system call. Returns how `child` ended, as
// waitpid() has it; nullopt: this user may not trace processes here.
inline std::optional<int> WatchSystemCalls(pid_t child, const OnSystemCall& on_entry) {
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return std::nullopt;
  ptrace(PTRACE_SETOPTIONS, child, nullptr,
         PTRACE_O_TRACECLONE | PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
  for (;;) {
    const pid_t stopped = waitpid(-1, &status, __WALL);
    if (stopped < 0) return status;
    if (!WIFSTOPPED(status)) {
      if (stopped == child) return status;
      continue;
    }
    __ptrace_syscall_info call{};
    if (WSTOPSIG(status) == (SIGTRAP | 0x80) &&
        ptrace(PTRACE_GET_SYSCALL_INFO, stopped, sizeof call, &call) > 0 &&
        call.op == PTRACE_SYSCALL_INFO_ENTRY) {
      on_entry(call, stopped);
    }
    ptrace(PTRACE_SYSCALL, stopped, nullptr, nullptr);
  }
}

// The string at `address` in the memory of a traced thread.
inline std::string StringIn(pid_t thread, std::uint64_t address) {
  std::ifstream memory("/proc/" + std::to_string(thread) + "/mem", std::ios::binary);
  memory.seekg(static_cast<std::streamoff>(address));
  std::string text;
  std::getline(memory, text, '\0');
  return text;
}

// Files by inode, since a file keeps it when it gets another name. 0: there is none.
inline ino_t FileAt(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

inline std::string LinkOf(pid_t thread, std::uint64_t fd) {
  return "/proc/" + std::to_string(thread) + "/fd/" + std::to_string(fd);
}

inline ino_t FileOf(pid_t thread, std::uint64_t fd) { return FileAt(LinkOf(thread, fd)); }

inline bool IsPipe(pid_t thread, std::uint64_t fd) {
  struct stat info {};
  return stat(LinkOf(thread, fd).c_str(), &info) == 0 && S_ISFIFO(info.st_mode);
}

}  // namespace ddprun
