// SPDX-License-Identifier: Apache-2.0
// Suggests a setting for a name that is misspelt, or that other programs use.
#pragma once

#include <string>
#include <vector>

namespace ddprun {

// The name among `known` that `name` probably means; empty if there is none. Case, `-` and `_` make
// no difference.
std::string NearestName(const std::string& name, const std::vector<std::string>& known);

// "; did you mean NAME?" with `prefix` before the name, or nothing.
std::string DidYouMean(const std::string& name, const std::vector<std::string>& known,
                       const std::string& prefix);

// The keys of all settings.
std::vector<std::string> SettingKeys();

}  // namespace ddprun
