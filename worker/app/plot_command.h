// SPDX-License-Identifier: Apache-2.0
// `train plot`: executes ddprun-plot, which is installed beside train.
#pragma once

#include "worker/app/commands.h"

namespace ddprun {

// Returns only by std::runtime_error: the program is not there.
void RunPlot(const CommandContext& context);

}  // namespace ddprun
