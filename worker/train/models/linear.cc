// SPDX-License-Identifier: Apache-2.0
// One linear layer from all values of an image (or of a row of features) to the classes.
#include <torch/nn/modules/linear.h>

#include "worker/train/models/models.h"

namespace ddprun {
namespace {

class LinearModel : public ImageModel {
 public:
  explicit LinearModel(const ModelOptions& options)
      : fc_(register_module("fc",
                            torch::nn::Linear(options.in_channels * options.height * options.width,
                                              options.classes))) {}

  bool begins_in_autocast() const override { return true; }

  std::vector<ModelPart> Parts() override {
    return {{"fc", {"fc"}, [this](const at::Tensor& x) { return fc_->forward(x.flatten(1)); }}};
  }

 private:
  torch::nn::Linear fc_;
};

std::shared_ptr<ImageModel> MakeLinear(const ModelOptions& options) {
  return std::make_shared<LinearModel>(options);
}

const bool kLinearAdded = Models().Add("linear", MakeLinear);

}  // namespace

}  // namespace ddprun
