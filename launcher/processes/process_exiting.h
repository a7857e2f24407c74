// SPDX-License-Identifier: Apache-2.0
// Whether the kernel is ending a process already: it writes a core, or has closed its files and not
// notified its parent yet. Peers may have seen the connection close by then.
#pragma once

#include <sys/types.h>

#include "absl/strings/string_view.h"

namespace ddprun {

// From the text of /proc/PID/stat, whose ninth field has PF_EXITING and PF_DUMPCORE of Linux's
// include/linux/sched.h. Pure. Of several threads the first one counts.
bool SaysEnding(absl::string_view stat);

// Looked at now. False for one that is not there.
bool IsEnding(pid_t pid);

}  // namespace ddprun
