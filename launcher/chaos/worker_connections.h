// SPDX-License-Identifier: Apache-2.0
// The TCP connections of a worker, as descriptors of this process (pidfd_getfd(2)).
#pragma once

#include <sys/types.h>

#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {

// Connected ones. PERMISSION_DENIED, UNIMPLEMENTED: the kernel or a seccomp filter forbids it.
// FAILED_PRECONDITION: there is none. `pid` must not have been reaped.
absl::StatusOr<std::vector<OwnedFd>> ConnectionsOf(pid_t pid, int pidfd);

}  // namespace ddprun
