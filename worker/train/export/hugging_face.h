// SPDX-License-Identifier: Apache-2.0
// A model as a folder that Hugging Face's transformers opens with from_pretrained(): config.json,
// model.safetensors and preprocessor_config.json.
#pragma once

#include <string>

#include "worker/train/config/config.h"
#include "worker/train/export/model_file.h"

namespace ddprun {

// Throws std::invalid_argument with one sentence if modeling_ddprun.py has no class of the model.
void RequirePythonClass(const std::string& model);

// Creates `folder` if needed. A ResNet with the ImageNet stem becomes transformers' own
// ResNetForImageClassification. For the other models the folder also contains their definition in
// Python (modeling_ddprun.py), which from_pretrained() loads with trust_remote_code=True. Each file
// is replaced atomically. Returns the Python expression that opens the folder. Throws
// std::runtime_error that names the path.
std::string SaveForTransformers(const ImageModel& model, const Config& config,
                                const ModelInput& input, const std::string& folder);

}  // namespace ddprun
