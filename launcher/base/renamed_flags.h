// SPDX-License-Identifier: Apache-2.0
// If a wrapper (a container's entry point) takes variables in place of flags, sentences name those
// variables.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// DDPRUN_FLAG_NAMES: "--master-port=MASTER_PORT --nnodes=WORLD_SIZE", parted by spaces.
inline constexpr char kFlagNamesVariable[] = "DDPRUN_FLAG_NAMES";

// `text` with each flag that `names` has replaced by its other name; whole flags only. Pure.
std::string RenameFlags(absl::string_view text, absl::string_view names);

// With the names of this process's environment; as it is where there are none.
std::string ForUsers(absl::string_view text);

}  // namespace ddprun
