// SPDX-License-Identifier: Apache-2.0
// Compares the number of nodes in a scheduler's variables with that of the command line: a node
// that does not know the others would silently train alone. Pure.
#pragma once

#include <string>

#include "launcher/options/options.h"

namespace ddprun {

// A warning, or empty. --standalone suppresses it.
std::string WorldOfOneWarning(const Options& options, const GetVariable& get_variable);

}  // namespace ddprun
