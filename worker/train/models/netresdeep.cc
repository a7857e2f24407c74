// SPDX-License-Identifier: Apache-2.0
// NetResDeep of "Deep Learning with PyTorch": a convolution to 32 channels, ten residual blocks,
// two linear layers.
//
// With `shared_blocks` the ten blocks are one block used ten times, as in the original, where
// `nn.Sequential(*(10 * [ResBlock()]))` repeats one object. In training each use normalises with
// its own batch, but the ten uses share one set of running statistics, which fits none of them: the
// model that is evaluated is not the one that was trained. So ten separate blocks are the default.
#include <ATen/ops/max_pool2d.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "worker/train/layers/batch_norm.h"
#include "worker/train/layers/padded_conv.h"
#include "worker/train/models/models.h"

namespace ddprun {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kChannels = 32;
constexpr std::int64_t kBlocks = 10;
constexpr std::int64_t kHidden = 32;
constexpr std::int64_t kShrink = 4;  // of a side, by two 2x2 pools: 32x32 images become 8x8

class ResBlock : public nn::Module {
 public:
  ResBlock() {
    nn::init::kaiming_normal_(conv_->weight, 0.0, torch::kFanIn, torch::kReLU);
    nn::init::constant_(batch_norm_->weight, 0.5);
    nn::init::zeros_(batch_norm_->bias);
  }

  at::Tensor forward(const at::Tensor& x) { return batch_norm_->ReluAdd(conv_->forward(x), x); }

 private:
  nn::Conv2d conv_ = register_module(
      "conv",
      nn::Conv2d(
          nn::Conv2dOptions(kChannels, kChannels, /*kernel_size=*/3).padding(1).bias(false)));
  BatchNorm batch_norm_ = register_module("batch_norm", BatchNorm(kChannels));
};

class NetResDeep : public ImageModel {
 public:
  explicit NetResDeep(const ModelOptions& options)
      : shared_blocks_(options.shared_blocks),
        conv1_(register_module(
            "conv1",
            nn::Conv2d(
                nn::Conv2dOptions(options.in_channels, kChannels, /*kernel_size=*/3).padding(1)))),
        resblocks_(register_module("resblocks", MakeBlocks(options.shared_blocks))),
        fc1_(register_module(
            "fc1",
            nn::Linear(options.height / kShrink * (options.width / kShrink) * kChannels, kHidden))),
        fc2_(register_module("fc2", nn::Linear(kHidden, options.classes))) {}

  bool begins_in_autocast() const override { return true; }
  bool takes_padded_images() const override { return true; }

  std::vector<ModelPart> Parts() override {
    // Pool and ReLU give the same numbers and gradients in either order; this one has a quarter of
    // the ReLU's work.
    std::vector<ModelPart> parts{{"stem", {"conv1"}, [this](const at::Tensor& x) {
                                    return at::max_pool2d(PaddedForward(conv1_, x), 2).relu_();
                                  }}};
    if (shared_blocks_) {
      parts.push_back({"resblocks", {"resblocks"}, [this](const at::Tensor& x) {
                         return resblocks_->forward(x);
                       }});
    } else {
      for (std::size_t i = 0; i < resblocks_->size(); ++i) {
        const std::string name = "resblocks." + std::to_string(i);
        parts.push_back({name, {name}, [block = resblocks_->ptr<ResBlock>(i)](const at::Tensor& x) {
                           return block->forward(x);
                         }});
      }
    }
    parts.push_back({"head", {"fc1", "fc2"}, [this](const at::Tensor& x) {
                       const at::Tensor features = at::max_pool2d(x, 2).flatten(1);
                       return fc2_->forward(at::relu(fc1_->forward(features)));
                     }});
    return parts;
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

  const bool shared_blocks_;
  nn::Conv2d conv1_;
  nn::Sequential resblocks_;
  nn::Linear fc1_;
  nn::Linear fc2_;
};

std::shared_ptr<ImageModel> MakeNetResDeep(const ModelOptions& options) {
  RequireImageSize("netresdeep", options, kShrink);
  return std::make_shared<NetResDeep>(options);
}

const bool kNetResDeepAdded = Models().Add("netresdeep", MakeNetResDeep);

}  // namespace

}  // namespace ddprun
