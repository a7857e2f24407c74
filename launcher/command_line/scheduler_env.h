// SPDX-License-Identifier: Apache-2.0
// What a scheduler says about the size of a run, against what the command line says: a node that
// does not know of the others trains alone, in a world of its own, and nobody notices. Pure.
#pragma once

#include <string>

#include "launcher/options/options.h"

namespace ddprun {

// A warning, or nothing. With --standalone a world of one is meant.
std::string WorldOfOneWarning(const Options& options, const GetVariable& get_variable);

}  // namespace ddprun
