// SPDX-License-Identifier: Apache-2.0
// A .env file: KEY=VALUE lines as a shell would read them, but nothing is expanded or executed.
// Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

struct EnvFile {
  std::vector<std::pair<std::string, std::string>> variables;  // in order, without DDPRUN_TOKEN
  // What DDPRUN_TOKEN is there; empty: it is not. To be wiped by who is given it.
  std::string token;
};

// `export KEY=VALUE`, comments, 'single quotes' (as they are) and "double quotes" (\n \t \r \"
// \\ \$
// \`). Of a key that comes twice the last one counts. INVALID_ARGUMENT names `path` and the line.
absl::StatusOr<EnvFile> ParseEnvFile(absl::string_view text, const std::string& path);

// A name that a variable may have.
bool IsVariableName(absl::string_view name);

// Overwrites a secret where it stands.
void Wipe(std::string& secret);

}  // namespace ddprun
