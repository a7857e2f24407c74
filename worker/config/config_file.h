// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "worker/config/config.h"

namespace ddprun {

// Sets what the YAML file `path` names, a map of settings to values. Keys may be spelt with `-` or
// `_`. Throws UsageError that names file, line and key.
void ReadConfigFile(Config& config, const std::string& path);

}  // namespace ddprun
