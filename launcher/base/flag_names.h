// SPDX-License-Identifier: Apache-2.0
// How people write the names of flags: `_` for `-`, the beginning of a name, and with mistakes.
// Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ddprun {

struct Flag;

// "nproc_per_node" -> "nproc-per-node", whatever the mixture.
std::string WithDashes(absl::string_view name);

// The same arguments with every flag before the program spelled as in `flags`: torchrun takes `_`
// and the beginning of a name where only one flag begins so (--nnode 2, --max_restart 3).
std::vector<std::string> CanonicalArguments(absl::Span<const Flag> flags,
                                            const std::vector<std::string>& arguments);

// The one of `names` that `word` was likely meant to be; empty if none is near.
std::string NearestName(absl::string_view word, const std::vector<std::string>& names);

// " (did you mean NAME?)", or nothing.
std::string DidYouMean(absl::string_view word, const std::vector<std::string>& names);

}  // namespace ddprun
