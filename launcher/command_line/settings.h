// SPDX-License-Identifier: Apache-2.0
// Where a flag's value comes from: the command line, then a PET_ variable (of the environment, then
// of --env-file), then --config, then, for the master's address and port, MASTER_ADDR and
// MASTER_PORT of --env-file. Pure: the caller provides the function that reads files.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "launcher/base/flags.h"

namespace ddprun {

extern const std::vector<Flag> kSettingsFlags;

// The text of a file that a person named; the error is a sentence.
using ReadFile = std::function<absl::StatusOr<std::string>(const std::string& path)>;

// A ReadFile where there are none.
absl::StatusOr<std::string> NoFiles(const std::string& path);

struct Settings {
  Values values;
  std::vector<std::string> program;  // of --config; empty: none is named there
  // What the files set and the environment does not have: for ddprun itself and its workers.
  std::vector<std::pair<std::string, std::string>> variables;
  // The file that has DDPRUN_TOKEN, which is read again by who may hold it; empty: none.
  std::string token_env_file;
};

// `values`: of the command line. INVALID_ARGUMENT and what `read_file` says: one sentence.
absl::StatusOr<Settings> GatherSettings(absl::Span<const Flag> flags, Values values,
                                        const GetVariable& get_variable, const ReadFile& read_file);

}  // namespace ddprun
