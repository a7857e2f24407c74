// SPDX-License-Identifier: Apache-2.0
// The models that can be trained, by name. A new one is a file of its own and a line in models.cc.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ddprun {

// Takes images (N x C x 32 x 32) and gives one score for each class (N x classes). Modules carry
// the names of the Python original, so that the state dict loads there.
class ImageModel : public torch::nn::Module {
 public:
  virtual at::Tensor forward(at::Tensor images) = 0;
};

struct ModelOptions {
  std::int64_t in_channels = 3;
  std::int64_t classes = 10;
  bool shared_blocks = true;  // netresdeep only
};

// Throws std::invalid_argument that lists the names there are.
std::shared_ptr<ImageModel> MakeModel(const std::string& name, const ModelOptions& options);

std::vector<std::string> ModelNames();

// Convolutions' weights for images kept pixel by pixel (channels-last). Must come before the
// reducer is built: it takes the parameters' strides as they are then.
void UseChannelsLast(torch::nn::Module& module);

}  // namespace ddprun
