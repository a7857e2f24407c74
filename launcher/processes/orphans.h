// SPDX-License-Identifier: Apache-2.0
// Processes that workers leave behind. A child subreaper inherits every descendant whose parent
// dies, also one with a session of its own, so that it can be found and ended.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

namespace ddprun {

// Orphans from now on become this process's children.
void BecomeSubreaper();

// Kills and reaps all children of this process, and theirs as they are inherited, until there is
// none. SIGCHLD must be blocked in every thread. Returns those that a SIGKILL did not end in time:
// they hang in the kernel.
std::vector<pid_t> KillAllChildren(std::chrono::milliseconds timeout);

// One step of that, without waiting: reaps the children that have ended and sends SIGKILL to the
// others, which are returned. Each of them that ends raises SIGCHLD. Absent: there is no child.
std::optional<std::vector<pid_t>> KillChildrenOnce();

// Reaps children that have ended, except those for which `is_known` holds: they have a reaper of
// their own.
void ReapOrphans(const std::function<bool(pid_t)>& is_known);

}  // namespace ddprun
