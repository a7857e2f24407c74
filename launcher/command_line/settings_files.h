// SPDX-License-Identifier: Apache-2.0
// Reads the files of --config and --env-file, and sets their variables.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/security/token.h"

namespace ddprun {

// A ReadFile. NOT_FOUND, PERMISSION_DENIED, or INVALID_ARGUMENT if the file is larger than
// kSettingsFileBytesMax.
absl::StatusOr<std::string> ReadSettingsFile(const std::string& path);

// DDPRUN_TOKEN of an .env file. PERMISSION_DENIED if other users can read the file.
absl::StatusOr<Token> ReadTokenOfEnvFile(const std::string& path);

// Sets them in this process and for all processes that it starts. Call before the first thread.
void SetVariables(const std::vector<std::pair<std::string, std::string>>& variables);

}  // namespace ddprun
