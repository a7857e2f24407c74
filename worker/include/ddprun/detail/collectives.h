// SPDX-License-Identifier: Apache-2.0
// Many tensors in few messages.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ddprun/world.h"

namespace ddprun {

// The tensors of `root` become every rank's, in few messages. All ranks must call it, with tensors
// of the same shapes and types on the world's device. Throws as Await() does.
void BroadcastAll(World& world, const std::vector<at::Tensor>& tensors, int root);

}  // namespace ddprun
