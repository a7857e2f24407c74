// SPDX-License-Identifier: Apache-2.0
// The library beside the program that serves HTTP: loading its web server would cost every run
// start time.
#pragma once

#include "absl/status/statusor.h"

namespace ddprun {

inline constexpr char kWebModuleName[] = "ddprun-metrics.so";

// The function `name` of it, which stays loaded. UNAVAILABLE: one sentence. `use`: "metrics are
// served".
absl::StatusOr<void*> WebModuleEntry(const char* name, const char* use);

}  // namespace ddprun
