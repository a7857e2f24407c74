// SPDX-License-Identifier: Apache-2.0
// Compares the size of the run that a scheduler's variables state with that of the command line: a
// node that does not know of the others would silently train alone, in a world of its own. Pure.
#pragma once

#include <string>

#include "launcher/options/options.h"

namespace ddprun {

// A warning, or nothing. With --standalone a world of one is meant.
std::string WorldOfOneWarning(const Options& options, const GetVariable& get_variable);

}  // namespace ddprun
