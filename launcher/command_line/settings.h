// SPDX-License-Identifier: Apache-2.0
// The sources of a flag's value, the first that has one wins: the command line, a PET_ variable of
// the environment or of --env-file, --config, and for the master's address and port MASTER_ADDR and
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

// The text of a file that the user named; the error is a sentence.
using ReadFile = std::function<absl::StatusOr<std::string>(const std::string& path)>;

// A ReadFile without files.
absl::StatusOr<std::string> NoFiles(const std::string& path);

struct Settings {
  Values values;
  std::vector<std::string> program;  // of --config; empty: not given
  // Variables of the files that the environment does not set: for ddprun itself and its workers.
  std::vector<std::pair<std::string, std::string>> variables;
  // The file that contains DDPRUN_TOKEN, to be read again by code that may hold it; empty: none.
  std::string token_env_file;
};

// `values`: of the command line. INVALID_ARGUMENT and the errors of `read_file`: one sentence.
absl::StatusOr<Settings> GatherSettings(absl::Span<const Flag> flags, Values values,
                                        const GetVariable& get_variable, const ReadFile& read_file);

}  // namespace ddprun
