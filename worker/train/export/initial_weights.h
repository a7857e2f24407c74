// SPDX-License-Identifier: Apache-2.0
// --init-from: loads initial weights from a file of another training or program.
#pragma once

#include <string>

#include "worker/train/config/config.h"
#include "worker/train/models/models.h"

namespace ddprun {

// Copies the tensors of config.init_from into `model`, which `config` describes: from a .pth or
// .safetensors file with the model's own names (torchvision's for the ResNets), a checkpoint, or a
// file or folder with the names of transformers' ResNet. A head (the last layer) for another number
// of classes is not copied. Returns one sentence on what was copied. Throws std::runtime_error that
// names the tensors that are missing, unexpected or of another shape; the model is then unchanged.
std::string LoadInitialWeights(ImageModel& model, const Config& config);

}  // namespace ddprun
