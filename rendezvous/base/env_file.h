// SPDX-License-Identifier: Apache-2.0
// A .env file: KEY=VALUE lines in shell syntax, but nothing is expanded or executed.
// Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// Has the run's secret.
inline constexpr char kTokenVariable[] = "DDPRUN_TOKEN";

struct EnvFile {
  std::vector<std::pair<std::string, std::string>> variables;  // in order, without DDPRUN_TOKEN
  // The value of DDPRUN_TOKEN; empty: it is not set there. The caller wipes it.
  std::string token;
};

// Accepts `export KEY=VALUE`, comments, 'single quotes' (literal) and "double quotes" with the
// escapes \n \t \r \" \\ \$ and \`. The last value of a repeated key counts. INVALID_ARGUMENT names
// `path` and the line.
absl::StatusOr<EnvFile> ParseEnvFile(absl::string_view text, const std::string& path);

// Whether a variable may have that name.
bool IsVariableName(absl::string_view name);

// Overwrites a secret where it stands.
void Wipe(std::string& secret);

}  // namespace ddprun
