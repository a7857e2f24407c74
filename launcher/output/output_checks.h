// SPDX-License-Identifier: Apache-2.0
// Whether a run will be able to write what it is asked to write, found before it starts.
#pragma once

#include "absl/status/status.h"
#include "launcher/options/options.h"

namespace ddprun {

// Of --verdict-file and --log-dir, whose folder is made. (--event-log is opened before the node
// joins.) INVALID_ARGUMENT: a sentence.
absl::Status CheckOutputs(const Options& options);

}  // namespace ddprun
