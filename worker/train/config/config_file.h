// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "worker/train/config/config.h"

namespace ddprun {

// The text of `path`, which may be a pipe. Throws UsageError that names the file.
std::string ReadConfigText(const std::string& path);

// Sets what the YAML text of the file `path` names, a map of settings to values. Keys may be spelt
// with `-` or
// `_`. Throws UsageError that names file, line and key.
void ApplyConfigText(Config& config, const std::string& path, const std::string& text);

// One line a setting, in the order of the table, under the names of its groups; one that has no
// value is a comment. `choices`: what a setting may be, empty for any.
std::string ToConfigText(const Config& config,
                         const std::function<std::vector<std::string>(const Setting&)>& choices);

}  // namespace ddprun
