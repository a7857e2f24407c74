// SPDX-License-Identifier: Apache-2.0
// `train compare`: the same work plain, data-parallel and as a pipeline, and a table of the three.
#pragma once

#include "worker/app/commands.h"

namespace ddprun {

void RunCompare(const CommandContext& context);

}  // namespace ddprun
