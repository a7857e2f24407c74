// SPDX-License-Identifier: Apache-2.0
// ResNets for 32x32 images: torchvision's networks, names and initialisation, with a 3x3
// convolution of stride 1 and no max-pool as stem, as is usual for CIFAR-10 (torchvision's stem
// would leave 1x1 maps of a 32x32 image).
#pragma once

#include <memory>

#include "worker/models.h"

namespace ddprun {

std::shared_ptr<ImageModel> MakeResNet18(const ModelOptions& options);
std::shared_ptr<ImageModel> MakeResNet34(const ModelOptions& options);
std::shared_ptr<ImageModel> MakeResNet50(const ModelOptions& options);

}  // namespace ddprun
