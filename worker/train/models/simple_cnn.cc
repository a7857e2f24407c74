// SPDX-License-Identifier: Apache-2.0
// The network of PyTorch's CIFAR-10 tutorial ("Training a Classifier"), its names and its
// initialisation: two convolutions with pooling, three linear layers.
#include <ATen/ops/max_pool2d.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "worker/train/models/models.h"

namespace ddprun {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kKernel = 5;
constexpr std::int64_t kSimpleCnnSideMin = 16;  // leaves one pixel before the linear layers

// The length of a side after both convolutions and pools.
std::int64_t FinalSide(std::int64_t side) { return ((side - kKernel + 1) / 2 - kKernel + 1) / 2; }

class SimpleCnn : public ImageModel {
 public:
  explicit SimpleCnn(const ModelOptions& options)
      : conv1_(register_module("conv1",
                               nn::Conv2d(nn::Conv2dOptions(options.in_channels, 6, kKernel)))),
        conv2_(register_module("conv2", nn::Conv2d(nn::Conv2dOptions(6, 16, kKernel)))),
        fc1_(register_module(
            "fc1", nn::Linear(16 * FinalSide(options.height) * FinalSide(options.width), 120))),
        fc2_(register_module("fc2", nn::Linear(120, 84))),
        fc3_(register_module("fc3", nn::Linear(84, options.classes))) {}

  bool begins_in_autocast() const override { return true; }

  std::vector<ModelPart> Parts() override {
    const auto layer = [](nn::Conv2d conv) {
      // Pool and ReLU give the same in either order; this one has a quarter of the ReLU's work.
      return [conv](const at::Tensor& x) mutable {
        return at::max_pool2d(conv->forward(x), 2).relu_();
      };
    };
    return {{"conv1", {"conv1"}, layer(conv1_)},
            {"conv2", {"conv2"}, layer(conv2_)},
            {"head", {"fc1", "fc2", "fc3"}, [this](const at::Tensor& x) {
               const at::Tensor hidden = fc1_->forward(x.flatten(1)).relu_();
               return fc3_->forward(fc2_->forward(hidden).relu_());
             }}};
  }

 private:
  nn::Conv2d conv1_;
  nn::Conv2d conv2_;
  nn::Linear fc1_;
  nn::Linear fc2_;
  nn::Linear fc3_;
};

std::shared_ptr<ImageModel> MakeSimpleCnn(const ModelOptions& options) {
  RequireImageSize("simple-cnn", options, kSimpleCnnSideMin);
  return std::make_shared<SimpleCnn>(options);
}

const bool kSimpleCnnAdded = Models().Add("simple-cnn", MakeSimpleCnn);

}  // namespace

}  // namespace ddprun
