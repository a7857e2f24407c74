// SPDX-License-Identifier: Apache-2.0
// What is known about a detached run, in one file: a folder of the run's name (REPLAY.md), as tar
// packs it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ddprun {

// A command line without what may be a secret: the rest of a URL after its host, and the values of
// names like "token", "password" and "api_key". Pure.
std::vector<std::string> WithoutSecrets(const std::vector<std::string>& command);

// The folder in the capsule, unpacked below `into`. Errors: one sentence.
absl::StatusOr<std::string> Unpack(const std::string& file, const std::string& into);

}  // namespace ddprun
