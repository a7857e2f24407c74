// SPDX-License-Identifier: Apache-2.0
// `train eval MODEL`: loss and accuracy on the test images, over all ranks.
#pragma once

#include "worker/app/commands.h"

namespace ddprun {

void RunEval(const CommandContext& context);

}  // namespace ddprun
