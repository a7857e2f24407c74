// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/status.h"

namespace ddprun {

// Puts the file in place whole or not at all, over one that is there. UNAVAILABLE: a sentence with
// the path and what is wrong.
absl::Status WriteWholeFile(const std::string& path, const std::string& text);

}  // namespace ddprun
