// SPDX-License-Identifier: Apache-2.0
// The names of flags as users write them (`_` for `-`, abbreviated, misspelled), and other names for
// them in sentences where a wrapper (a container's entry point) takes variables in place of flags.
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

// DDPRUN_FLAG_NAMES: "--master-port=MASTER_PORT --nnodes=WORLD_SIZE", parted by spaces.
inline constexpr char kFlagNamesVariable[] = "DDPRUN_FLAG_NAMES";

// `text` with each flag that `names` has replaced by its other name; whole flags only.
std::string RenameFlags(absl::string_view text, absl::string_view names);

// RenameFlags() with the names in this process's environment, if any.
std::string ForUsers(absl::string_view text);

}  // namespace ddprun
