// SPDX-License-Identifier: Apache-2.0
// All settings as a YAML file with comments, which ReadConfigFile() reads back. Pure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "worker/config/config.h"

namespace ddprun {

// One line a setting, in the order of the table, under the names of its groups; one that has no
// value is a comment. `choices`: what a setting may be, empty for any.
std::string ToConfigText(const Config& config,
                         const std::function<std::vector<std::string>(const Setting&)>& choices);

}  // namespace ddprun
