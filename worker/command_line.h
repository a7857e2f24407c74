// SPDX-License-Identifier: Apache-2.0
// The command line of `train`: settings over those of a --config file over the defaults.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "worker/config.h"

namespace ddprun {

// --help or --version was asked for: print this and end with 0.
struct Information {
  std::string text;
};

// `arguments` without the program's name. Every option may be spelt with `-` or `_`, and may come
// as `--a b` or
// `--a=b`. Throws UsageError for whatever is not understood; the result has been validated.
std::variant<Config, Information> ParseCommandLine(const std::vector<std::string>& arguments);

}  // namespace ddprun
