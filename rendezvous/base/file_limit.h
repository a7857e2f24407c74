// SPDX-License-Identifier: Apache-2.0
// The limit of open files: a service needs one for each node, and a shell's default is 1024.
#pragma once

#include <sys/resource.h>

namespace ddprun {

// Raises this process's soft limit to its hard limit. Child processes inherit it unless they are
// given the old one; programs that use select() need that.
inline void RaiseFileLimit() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace ddprun
