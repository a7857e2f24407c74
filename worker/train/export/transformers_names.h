// SPDX-License-Identifier: Apache-2.0
// Translates tensor names of torchvision's ResNets to those of Hugging Face's transformers
// (models/resnet/modeling_resnet.py, ResNetForImageClassification). Pure.
#pragma once

#include <optional>
#include <string>

namespace ddprun {

// "layer2.0.bn1.weight" is "resnet.encoder.stages.1.layers.0.layer.0.normalization.weight" there.
// Empty for a name that no ResNet of torchvision has.
std::optional<std::string> TransformersName(const std::string& name);

}  // namespace ddprun
