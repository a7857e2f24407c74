// SPDX-License-Identifier: Apache-2.0
// The sources of a flag's value, the first that has one wins: the command line, a PET_ variable of
// the environment or of --env-file, --config, and for the master's address and port MASTER_ADDR and
// MASTER_PORT of --env-file.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "launcher/base/flags.h"
#include "rendezvous/security/token.h"

namespace ddprun {

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

// Pure. `values`: of the command line. INVALID_ARGUMENT and the errors of `read_file`: one
// sentence.
absl::StatusOr<Settings> GatherSettings(absl::Span<const Flag> flags, Values values,
                                        const GetVariable& get_variable, const ReadFile& read_file);

// ---- Not pure (settings_files.cc)

// A ReadFile. NOT_FOUND, PERMISSION_DENIED, or INVALID_ARGUMENT if the file is larger than
// kSettingsFileBytesMax.
absl::StatusOr<std::string> ReadSettingsFile(const std::string& path);

// DDPRUN_TOKEN of an .env file. PERMISSION_DENIED if other users can read the file.
absl::StatusOr<Token> ReadTokenOfEnvFile(const std::string& path);

// Sets them in this process and for all processes that it starts. Call before the first thread.
void SetVariables(const std::vector<std::pair<std::string, std::string>>& variables);

}  // namespace ddprun
