// SPDX-License-Identifier: Apache-2.0
// The file of --config: flags in YAML, the program, and variables of the workers. Pure.
//
//   nnodes: 2
//   nproc_per_node: gpu
//   rdzv-conf: {join_timeout: 60}
//   env: {NCCL_DEBUG: INFO}
//   program: [train, --epochs, 10]
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "launcher/base/flags.h"

namespace ddprun {

struct ConfigFile {
  Values values;                     // by the flag's name
  std::vector<std::string> program;  // with its arguments; empty: not given
  std::vector<std::pair<std::string, std::string>> env;
};

// A list becomes a comma-separated value, a map KEY=VALUE,KEY=VALUE. INVALID_ARGUMENT: one sentence
// that names `path` and, for an unknown key, the nearest known one.
absl::StatusOr<ConfigFile> ParseConfigFile(const std::string& text, const std::string& path,
                                           absl::Span<const Flag> flags);

}  // namespace ddprun
