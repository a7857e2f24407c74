// SPDX-License-Identifier: Apache-2.0
#include "worker/netresdeep.h"

#include <torch/nn/functional/pooling.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

namespace ddprun {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kChannels = 32;
constexpr std::int64_t kBlocks = 10;
constexpr std::int64_t kHidden = 32;
constexpr std::int64_t kFinalSide = 8;  // 32x32 images after two 2x2 pools

class ResBlock : public nn::Module {
 public:
  ResBlock() {
    nn::init::kaiming_normal_(conv_->weight, 0.0, torch::kFanIn, torch::kReLU);
    nn::init::constant_(batch_norm_->weight, 0.5);
    nn::init::zeros_(batch_norm_->bias);
  }

  at::Tensor forward(const at::Tensor& x) {
    // The activation is this block's own, so it may be overwritten; batch norm's backward does not
    // need its output.
    return batch_norm_->forward(conv_->forward(x)).relu_().add(x);
  }

 private:
  nn::Conv2d conv_ = register_module(
      "conv",
      nn::Conv2d(
          nn::Conv2dOptions(kChannels, kChannels, /*kernel_size=*/3).padding(1).bias(false)));
  nn::BatchNorm2d batch_norm_ = register_module("batch_norm", nn::BatchNorm2d(kChannels));
};

class NetResDeep : public ImageModel {
 public:
  explicit NetResDeep(const ModelOptions& options)
      : conv1_(register_module(
            "conv1",
            nn::Conv2d(
                nn::Conv2dOptions(options.in_channels, kChannels, /*kernel_size=*/3).padding(1)))),
        resblocks_(register_module("resblocks", MakeBlocks(options.shared_blocks))),
        fc1_(register_module("fc1", nn::Linear(kFinalSide * kFinalSide * kChannels, kHidden))),
        fc2_(register_module("fc2", nn::Linear(kHidden, options.classes))) {}

  at::Tensor forward(at::Tensor images) override {
    // Pool and ReLU give the same numbers and gradients in either order; this one has a quarter of
    // the ReLU's work.
    at::Tensor x = at::max_pool2d(conv1_->forward(images), 2).relu_();
    x = at::max_pool2d(resblocks_->forward(x), 2);
    x = at::relu(fc1_->forward(x.flatten(1)));
    return fc2_->forward(x);
  }

 private:
  static nn::Sequential MakeBlocks(bool shared) {
    nn::Sequential blocks;
    const auto first = std::make_shared<ResBlock>();
    blocks->push_back(first);
    for (std::int64_t i = 1; i < kBlocks; ++i) {
      blocks->push_back(shared ? first : std::make_shared<ResBlock>());
    }
    return blocks;
  }

  nn::Conv2d conv1_;
  nn::Sequential resblocks_;
  nn::Linear fc1_;
  nn::Linear fc2_;
};

}  // namespace

std::shared_ptr<ImageModel> MakeNetResDeep(const ModelOptions& options) {
  return std::make_shared<NetResDeep>(options);
}

}  // namespace ddprun
