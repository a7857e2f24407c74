// SPDX-License-Identifier: Apache-2.0
// NetResDeep of "Deep Learning with PyTorch": a convolution to 32 channels, ten residual blocks,
// two linear layers.
#pragma once

#include <memory>

#include "worker/models.h"

namespace ddprun {

// `options.shared_blocks`: the ten blocks are one block used ten times, as in the original, where
// `nn.Sequential(*(10 * [ResBlock()]))` repeats one object. That is the default: results compare
// with the original's. Ten separate blocks (ten times the parameters in them) stand a higher
// learning rate.
std::shared_ptr<ImageModel> MakeNetResDeep(const ModelOptions& options);

}  // namespace ddprun
