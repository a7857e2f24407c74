// SPDX-License-Identifier: Apache-2.0
// The Python frames of another process: finds its interpreter, reads its memory. For ddprun-stacks.
#pragma once

#include <elfutils/libdwfl.h>
#include <sys/types.h>

#include <string>
#include <vector>

namespace ddprun {

// Lines for a person; none if Python does not run in that process. `dwfl` has its modules.
std::vector<std::string> PythonStacks(Dwfl* dwfl, pid_t pid);

}  // namespace ddprun
