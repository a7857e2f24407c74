// SPDX-License-Identifier: Apache-2.0
// `train export MODEL --format pth|hf|torchscript --output PATH`: writes a model for other
// programs.
#pragma once

#include "worker/app/commands.h"

namespace ddprun {

void RunExport(const CommandContext& context);

}  // namespace ddprun
