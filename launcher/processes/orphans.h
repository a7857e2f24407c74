// SPDX-License-Identifier: Apache-2.0
// Processes that workers leave behind. A child subreaper inherits every descendant whose parent
// dies, also one in another session, and can therefore kill it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

namespace ddprun {

// Orphans from now on become this process's children.
void BecomeSubreaper();

// Kills and reaps all children of this process, and their children once inherited, until none is
// left. SIGCHLD must be blocked in every thread. Returns those that SIGKILL did not end in time:
// they hang in the kernel.
std::vector<pid_t> KillAllChildren(std::chrono::milliseconds timeout);

// One step of KillAllChildren(), without waiting: reaps the children that have ended and sends
// SIGKILL to the others, which it returns. Each of them raises SIGCHLD when it ends. Absent: there
// is no child. Those for which `is_known` is true are left alone, and reaped elsewhere.
std::optional<std::vector<pid_t>> KillChildrenOnce(const std::function<bool(pid_t)>& is_known =
                                                       [](pid_t) { return false; });

// Reaps children that have ended, except those for which `is_known` is true, which are reaped
// elsewhere.
void ReapOrphans(const std::function<bool(pid_t)>& is_known);

}  // namespace ddprun
