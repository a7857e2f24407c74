// SPDX-License-Identifier: Apache-2.0
// What /proc/PID/stat says about a process.
#pragma once

#include <sys/types.h>

#include "absl/strings/string_view.h"

namespace ddprun {

// Whether the kernel is ending the process already: it writes a core, or has closed its files and
// not notified its parent yet. Peers may have seen the connection close by then. From the text of
// the file, whose ninth field has PF_EXITING and PF_DUMPCORE of Linux's include/linux/sched.h. Of
// several threads the first one counts. Pure.
bool SaysEnding(absl::string_view stat);

// Looked at now. False for a process that is not there.
bool IsEnding(pid_t pid);

// 0 for a process that is not there.
pid_t ParentOf(pid_t pid);

}  // namespace ddprun
