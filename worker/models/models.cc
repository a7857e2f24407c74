// SPDX-License-Identifier: Apache-2.0
#include "worker/models/models.h"

#include <functional>
#include <stdexcept>
#include <utility>

#include "worker/base/unique_tensors.h"

// Every model: its name, and the function that makes one. A new model is a file of its own in this
// folder and a line here.
#define DDPRUN_MODELS(MODEL)          \
  MODEL("linear", MakeLinear)         \
  MODEL("simple-cnn", MakeSimpleCnn)  \
  MODEL("netresdeep", MakeNetResDeep) \
  MODEL("airbench", MakeAirbench)     \
  MODEL("resnet18", MakeResNet18)     \
  MODEL("resnet34", MakeResNet34)     \
  MODEL("resnet50", MakeResNet50)     \
  MODEL("torchscript", MakeScriptModel)

namespace ddprun {

#define DDPRUN_DECLARE(name, make) std::shared_ptr<ImageModel> make(const ModelOptions& options);
DDPRUN_MODELS(DDPRUN_DECLARE)
#undef DDPRUN_DECLARE

namespace {

using Factory = std::function<std::shared_ptr<ImageModel>(const ModelOptions&)>;

const std::vector<std::pair<std::string, Factory>>& Table() {
#define DDPRUN_ROW(name, make) {name, make},
  static const std::vector<std::pair<std::string, Factory>> table = {DDPRUN_MODELS(DDPRUN_ROW)};
#undef DDPRUN_ROW
  return table;
}

}  // namespace

std::shared_ptr<ImageModel> MakeModel(const std::string& name, const ModelOptions& options) {
  std::string names;
  for (const auto& [known, factory] : Table()) {
    if (known == name) return factory(options);
    names += (names.empty() ? "" : ", ") + known;
  }
  throw std::invalid_argument("--model " + name + " is not known; choose one of " + names);
}

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  for (const auto& entry : Table()) names.push_back(entry.first);
  return names;
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
