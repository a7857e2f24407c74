// SPDX-License-Identifier: Apache-2.0
// `train` itself: trains a model as one rank.
#pragma once

#include "worker/app/commands.h"

namespace ddprun {

void RunTrain(const CommandContext& context);

}  // namespace ddprun
