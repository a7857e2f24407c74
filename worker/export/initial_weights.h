// SPDX-License-Identifier: Apache-2.0
// --init-from: loads initial weights from a file of another training or program.
#pragma once

#include <string>

#include "worker/config/config.h"
#include "worker/models/models.h"

namespace ddprun {

// Copies into `model`, which `config` describes, the tensors of config.init_from: a .pth or
// .safetensors file with the model's own names (torchvision's for the ResNets), a checkpoint, or a
// file or folder with the names of transformers' ResNet. A head (the last layer) for another number
// of classes is left as it is. Returns one sentence on what was taken. Throws std::runtime_error
// that names what is missing, too much or of another shape; the model is untouched then.
std::string LoadInitialWeights(ImageModel& model, const Config& config);

}  // namespace ddprun
