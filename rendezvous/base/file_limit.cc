// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/file_limit.h"

#include <sys/resource.h>

namespace ddprun {

void RaiseFileLimit() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace ddprun
