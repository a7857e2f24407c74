// SPDX-License-Identifier: Apache-2.0
// A file of --config: flags in YAML, with the program and variables of its workers. Pure.
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
  std::vector<std::string> program;  // and its arguments; empty: none is named
  std::vector<std::pair<std::string, std::string>> env;
};

// A list under a flag is its comma-separated value, a map its KEY=VALUE,KEY=VALUE.
// INVALID_ARGUMENT: one sentence that names `path` and, of an unknown key, the nearest that is
// known.
absl::StatusOr<ConfigFile> ParseConfigFile(const std::string& text, const std::string& path,
                                           absl::Span<const Flag> flags);

}  // namespace ddprun
