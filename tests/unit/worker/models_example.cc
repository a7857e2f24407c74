// SPDX-License-Identifier: Apache-2.0
// Two linear layers with a ReLU between: how a model is added (worker/README.md).
#include <torch/nn/modules/linear.h>

#include "worker/train/models/models.h"

namespace ddprun {
namespace {

class Perceptron : public ImageModel {
 public:
  explicit Perceptron(const ModelOptions& options)
      : hidden_(register_module(
            "hidden",
            torch::nn::Linear(options.in_channels * options.height * options.width, 256))),
        fc_(register_module("fc", torch::nn::Linear(256, options.classes))) {}

  // In order; where a part ends, --pipeline may cut.
  std::vector<ModelPart> Parts() override {
    return {{"hidden",
             {"hidden"},
             [this](const at::Tensor& x) { return hidden_->forward(x.flatten(1)).relu_(); }},
            {"fc", {"fc"}, [this](const at::Tensor& x) { return fc_->forward(x); }}};
  }

 private:
  torch::nn::Linear hidden_;
  torch::nn::Linear fc_;
};

std::shared_ptr<ImageModel> MakePerceptron(const ModelOptions& options) {
  return std::make_shared<Perceptron>(options);
}

const bool kPerceptronAdded = Models().Add("perceptron", MakePerceptron);

}  // namespace
}  // namespace ddprun
