// SPDX-License-Identifier: Apache-2.0
// torchvision's ResNets (its v1.5: a bottleneck's stride is on the 3x3 convolution), names and
// initialisation. The stem "imagenet" is torchvision's own, a 7x7 convolution of stride 2 and a
// max-pool; "cifar" is a 3x3 convolution of stride 1 and no pool, as is usual for CIFAR-10
// (torchvision's would leave 1x1 maps of a 32x32 image).
#include <ATen/ops/conv2d.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <array>
#include <string>

#include "worker/train/layers/batch_norm.h"
#include "worker/train/layers/gpu_norm.h"
#include "worker/train/layers/padded_conv.h"
#include "worker/train/models/models.h"

namespace ddprun {
namespace {

namespace nn = torch::nn;

// A convolution with a square kernel, padded to keep the size, and no bias: torch.nn.Conv2d's names
// and numbers. Its weights are drawn once, as torchvision's ResNets' are. Conv2d would draw them
// twice, which is a tenth of a second of a ResNet-18's start.
class ConvImpl : public nn::Module {
 public:
  ConvImpl(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride)
      : weight_(register_parameter("weight", at::empty({out, in, kernel, kernel}))),
        stride_(stride) {
    nn::init::kaiming_normal_(weight_, 0.0, torch::kFanOut, torch::kReLU);
  }

  at::Tensor forward(const at::Tensor& x) {
    return at::conv2d(x, PadWeight(weight_, x), /*bias=*/{}, stride_,
                      /*padding=*/weight_.size(2) / 2);
  }

 private:
  at::Tensor weight_;  // out x in x kernel x kernel
  const std::int64_t stride_;
};
TORCH_MODULE(Conv);

// Common to both kinds of block: the shortcut, a 1x1 convolution where the shape changes.
class Block : public nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& x) = 0;

 protected:
  void MakeShortcut(std::int64_t in, std::int64_t out, std::int64_t stride) {
    if (stride == 1 && in == out) return;
    downsample_ =
        register_module("downsample", nn::Sequential(Conv(in, out, 1, stride), BatchNorm(out)));
  }

  at::Tensor Shortcut(const at::Tensor& x) {
    return downsample_.is_empty() ? x : downsample_->forward(x);
  }

 private:
  nn::Sequential downsample_{nullptr};
};

class BasicBlock : public Block {
 public:
  static constexpr std::int64_t kExpansion = 1;

  BasicBlock(std::int64_t in, std::int64_t width, std::int64_t stride)
      : conv1_(register_module("conv1", Conv(in, width, 3, stride))),
        bn1_(register_module("bn1", BatchNorm(width))),
        conv2_(register_module("conv2", Conv(width, width, 3, 1))),
        bn2_(register_module("bn2", BatchNorm(width))) {
    MakeShortcut(in, width * kExpansion, stride);
  }

  at::Tensor forward(const at::Tensor& x) override {
    const auto [main, side] = Fork(x);
    const at::Tensor out = conv2_->forward(bn1_->Relu(conv1_->forward(main)));
    return bn2_->AddRelu(out, Shortcut(side));
  }

 private:
  Conv conv1_;
  BatchNorm bn1_;
  Conv conv2_;
  BatchNorm bn2_;
};

class Bottleneck : public Block {
 public:
  static constexpr std::int64_t kExpansion = 4;

  Bottleneck(std::int64_t in, std::int64_t width, std::int64_t stride)
      : conv1_(register_module("conv1", Conv(in, width, 1, 1))),
        bn1_(register_module("bn1", BatchNorm(width))),
        conv2_(register_module("conv2", Conv(width, width, 3, stride))),
        bn2_(register_module("bn2", BatchNorm(width))),
        conv3_(register_module("conv3", Conv(width, width * kExpansion, 1, 1))),
        bn3_(register_module("bn3", BatchNorm(width * kExpansion))) {
    MakeShortcut(in, width * kExpansion, stride);
  }

  at::Tensor forward(const at::Tensor& x) override {
    const auto [main, side] = Fork(x);
    at::Tensor out = bn1_->Relu(conv1_->forward(main));
    out = conv3_->forward(bn2_->Relu(conv2_->forward(out)));
    return bn3_->AddRelu(out, Shortcut(side));
  }

 private:
  Conv conv1_;
  BatchNorm bn1_;
  Conv conv2_;
  BatchNorm bn2_;
  Conv conv3_;
  BatchNorm bn3_;
};

template <typename BlockType>
class ResNet : public ImageModel {
 public:
  ResNet(const ModelOptions& options, const std::array<int, 4>& depths)
      : large_images_(options.stem == "imagenet"),
        conv1_(register_module("conv1", large_images_ ? Conv(options.in_channels, 64, 7, 2)
                                                      : Conv(options.in_channels, 64, 3, 1))),
        bn1_(register_module("bn1", BatchNorm(64))) {
    std::int64_t in = 64;
    std::int64_t width = 64;
    for (std::size_t i = 0; i < depths.size(); ++i, width *= 2) {
      nn::Sequential layer;
      for (int j = 0; j < depths[i]; ++j) {
        layer->push_back(std::make_shared<BlockType>(in, width, i > 0 && j == 0 ? 2 : 1));
        in = width * BlockType::kExpansion;
      }
      layers_[i] = register_module("layer" + std::to_string(i + 1), layer);
    }
    fc_ = register_module("fc", nn::Linear(in, options.classes));
  }

  bool begins_in_autocast() const override { return true; }
  bool takes_padded_images() const override { return true; }

  std::vector<ModelPart> Parts() override {
    std::vector<ModelPart> parts{{"stem", {"conv1", "bn1"}, [this](const at::Tensor& x) {
                                    const at::Tensor out = bn1_->Relu(conv1_->forward(x));
                                    return large_images_
                                               ? at::max_pool2d(out, /*kernel_size=*/3,
                                                                /*stride=*/2, /*padding=*/1)
                                               : out;
                                  }}};
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      for (std::size_t j = 0; j < layers_[i]->size(); ++j) {
        const std::string name = "layer" + std::to_string(i + 1) + "." + std::to_string(j);
        parts.push_back(
            {name, {name}, [block = layers_[i]->ptr<BlockType>(j)](const at::Tensor& x) {
               return block->forward(x);
             }});
      }
    }
    parts.push_back({"head", {"fc"}, [this](const at::Tensor& x) {
                       return fc_->forward(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
                     }});
    return parts;
  }

 private:
  const bool large_images_;
  Conv conv1_;
  BatchNorm bn1_;
  std::array<nn::Sequential, 4> layers_{nullptr, nullptr, nullptr, nullptr};
  nn::Linear fc_{nullptr};
};

std::shared_ptr<ImageModel> MakeResNet18(const ModelOptions& options) {
  return std::make_shared<ResNet<BasicBlock>>(options, std::array{2, 2, 2, 2});
}

std::shared_ptr<ImageModel> MakeResNet34(const ModelOptions& options) {
  return std::make_shared<ResNet<BasicBlock>>(options, std::array{3, 4, 6, 3});
}

std::shared_ptr<ImageModel> MakeResNet50(const ModelOptions& options) {
  return std::make_shared<ResNet<Bottleneck>>(options, std::array{3, 4, 6, 3});
}

const bool kResNetsAdded = Models().Add("resnet18", MakeResNet18) &&
                           Models().Add("resnet34", MakeResNet34) &&
                           Models().Add("resnet50", MakeResNet50);

}  // namespace

}  // namespace ddprun
