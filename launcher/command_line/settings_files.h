// SPDX-License-Identifier: Apache-2.0
// The files behind --config and --env-file, and what becomes of what they say.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/security/token.h"

namespace ddprun {

// A ReadFile. NOT_FOUND, PERMISSION_DENIED, or INVALID_ARGUMENT if it is larger than a person
// writes.
absl::StatusOr<std::string> ReadSettingsFile(const std::string& path);

// DDPRUN_TOKEN of an .env file. PERMISSION_DENIED if others can read the file.
absl::StatusOr<Token> ReadTokenOfEnvFile(const std::string& path);

// Sets them in this process, for itself and all it starts. Before the first thread.
void SetVariables(const std::vector<std::pair<std::string, std::string>>& variables);

}  // namespace ddprun
