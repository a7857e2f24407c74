// SPDX-License-Identifier: Apache-2.0
// `train` itself: trains a model as one of the world's ranks.
#pragma once

#include "worker/app/commands.h"

namespace ddprun {

void RunTrain(const CommandContext& context);

}  // namespace ddprun
