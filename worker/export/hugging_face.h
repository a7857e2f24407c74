// SPDX-License-Identifier: Apache-2.0
// A model as a folder that Hugging Face's transformers opens with from_pretrained(): config.json,
// model.safetensors and preprocessor_config.json.
#pragma once

#include <string>

#include "worker/config/config.h"
#include "worker/export/model_file.h"

namespace ddprun {

// Throws std::invalid_argument with one sentence if Python's side of such a folder does not know
// the model.
void RequirePythonClass(const std::string& model);

// Makes `folder` if it is not there. A ResNet with the ImageNet stem becomes transformers' own
// ResNetForImageClassification, and needs nothing of ours there. For the others the folder has
// their definition in Python too (modeling_ddprun.py), which from_pretrained() takes with
// trust_remote_code=True. Each file is the old one or the whole new one. Returns how to open it.
// Throws std::runtime_error that names the path.
std::string SaveForTransformers(const ImageModel& model, const Config& config,
                                const ModelInput& input, const std::string& folder);

}  // namespace ddprun
