// SPDX-License-Identifier: Apache-2.0
// Whether the kernel is ending a process already: a core is being written, or its files are closed
// and its parent has not been told yet. Its peers may have seen it go by then.
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
