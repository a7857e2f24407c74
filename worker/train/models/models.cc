// SPDX-License-Identifier: Apache-2.0
#include "worker/train/models/models.h"

#include <stdexcept>

#include "worker/library/base/unique_tensors.h"

namespace ddprun {

Registry<ModelFactory>& Models() {
  static Registry<ModelFactory> models("--model");
  return models;
}

std::shared_ptr<ImageModel> MakeModel(const std::string& name, const ModelOptions& options) {
  return Models().Get(name)(options);
}

void RequireImageSize(const std::string& model, const ModelOptions& options,
                      std::int64_t side_min) {
  if (options.height >= side_min && options.width >= side_min) return;
  const auto size = [](std::int64_t height, std::int64_t width) {
    return std::to_string(height) + "x" + std::to_string(width);
  };
  throw std::invalid_argument("--model " + model + " takes images of at least " +
                              size(side_min, side_min) + " pixels, but the data set's have " +
                              size(options.height, options.width) +
                              "; choose another --model or a larger --input-size");
}

at::Tensor ImageModel::forward(at::Tensor images) {
  if (parts_.empty()) parts_ = Parts();
  for (const ModelPart& part : parts_) images = part.forward(images);
  return images;
}

void UseChannelsLast(torch::nn::Module& module) {
  torch::NoGradGuard no_grad;
  for (auto& parameter : UniqueParameters(module)) {
    if (parameter.dim() != 4) continue;
    // Copied, since a 1x1 kernel's weights would stay as they are: their strides mean both formats,
    // but those of its gradients will be these, and the reducer wants them alike.
    const at::Tensor value = parameter.detach();
    parameter.set_data(
        at::empty_like(value, value.options(), at::MemoryFormat::ChannelsLast).copy_(value));
  }
}

}  // namespace ddprun
