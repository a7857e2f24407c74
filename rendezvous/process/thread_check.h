// SPDX-License-Identifier: Apache-2.0
// What happens where a limit of processes or of memory, or a container's filter, leaves no room for
// a thread. gRPC aborts the process then, without a word about the reason.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace ddprun {

// Starts that many threads and ends them again: 0.3 ms for 20. RESOURCE_EXHAUSTED: one sentence
// with the limits of this process. Must be called before the first use of gRPC.
absl::Status CheckThreads(int count);

// What may be raised where no thread can be started: "raise `ulimit -u` (24), or the limit ...".
std::string ThreadsRemedy();

// From here on a thread that cannot be started ends the process with that sentence, preceded by
// `program`, and exit code 1, instead of std::terminate()'s. Call it first in main().
void ExplainThreadFailures(const char* program);

}  // namespace ddprun
