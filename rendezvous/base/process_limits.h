// SPDX-License-Identifier: Apache-2.0
// What the system lets this process have: open files, of which a service needs one for each node
// while a shell's default is 1024, and threads.
#pragma once

#include <sys/resource.h>

#include <string>
#include <system_error>
#include <thread>

namespace ddprun {

// Raises this process's soft limit to its hard limit. Child processes inherit it unless they are
// given the old one; programs that use select() need that.
inline void RaiseFileLimit() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

// Starts a thread and joins it. Empty: that works, or fails for a reason that need not last.
// Otherwise a sentence: a container's filter answers clone3 with EPERM, and glibc 2.34 or newer
// starts threads without that call only for ENOSYS. The first thread would end the program.
inline std::string WhyNoThreads() {
  try {
    std::thread([] {}).join();
  } catch (const std::system_error& thrown) {
    if (thrown.code() == std::errc::operation_not_permitted) {
      return "cannot start a thread: this container's filter (seccomp) forbids the system call "
             "clone3; update the container runtime (Docker 20.10.10 or newer), or run the "
             "container with --security-opt seccomp=unconfined";
    }
  }
  return "";
}

}  // namespace ddprun
