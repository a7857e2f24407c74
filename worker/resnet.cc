// SPDX-License-Identifier: Apache-2.0
#include "worker/resnet.h"

#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <array>
#include <string>

namespace ddprun {
namespace {

namespace nn = torch::nn;

nn::Conv2d MakeConv(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride) {
  nn::Conv2d conv(
      nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
  nn::init::kaiming_normal_(conv->weight, 0.0, torch::kFanOut, torch::kReLU);
  return conv;
}

// What both kinds of block have: the shortcut, which is a 1x1 convolution where the shape changes.
class Block : public nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& x) = 0;

 protected:
  void MakeShortcut(std::int64_t in, std::int64_t out, std::int64_t stride) {
    if (stride == 1 && in == out) return;
    downsample_ = register_module(
        "downsample", nn::Sequential(MakeConv(in, out, 1, stride), nn::BatchNorm2d(out)));
  }

  at::Tensor AddShortcut(at::Tensor out, const at::Tensor& x) {
    return out.add_(downsample_.is_empty() ? x : downsample_->forward(x)).relu_();
  }

 private:
  nn::Sequential downsample_{nullptr};
};

class BasicBlock : public Block {
 public:
  static constexpr std::int64_t kExpansion = 1;

  BasicBlock(std::int64_t in, std::int64_t width, std::int64_t stride)
      : conv1_(register_module("conv1", MakeConv(in, width, 3, stride))),
        bn1_(register_module("bn1", nn::BatchNorm2d(width))),
        conv2_(register_module("conv2", MakeConv(width, width, 3, 1))),
        bn2_(register_module("bn2", nn::BatchNorm2d(width))) {
    MakeShortcut(in, width * kExpansion, stride);
  }

  at::Tensor forward(const at::Tensor& x) override {
    at::Tensor out = bn1_->forward(conv1_->forward(x)).relu_();
    return AddShortcut(bn2_->forward(conv2_->forward(out)), x);
  }

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  nn::Conv2d conv2_;
  nn::BatchNorm2d bn2_;
};

class Bottleneck : public Block {
 public:
  static constexpr std::int64_t kExpansion = 4;

  Bottleneck(std::int64_t in, std::int64_t width, std::int64_t stride)
      : conv1_(register_module("conv1", MakeConv(in, width, 1, 1))),
        bn1_(register_module("bn1", nn::BatchNorm2d(width))),
        conv2_(register_module("conv2", MakeConv(width, width, 3, stride))),
        bn2_(register_module("bn2", nn::BatchNorm2d(width))),
        conv3_(register_module("conv3", MakeConv(width, width * kExpansion, 1, 1))),
        bn3_(register_module("bn3", nn::BatchNorm2d(width * kExpansion))) {
    MakeShortcut(in, width * kExpansion, stride);
  }

  at::Tensor forward(const at::Tensor& x) override {
    at::Tensor out = bn1_->forward(conv1_->forward(x)).relu_();
    out = bn2_->forward(conv2_->forward(out)).relu_();
    return AddShortcut(bn3_->forward(conv3_->forward(out)), x);
  }

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  nn::Conv2d conv2_;
  nn::BatchNorm2d bn2_;
  nn::Conv2d conv3_;
  nn::BatchNorm2d bn3_;
};

template <typename BlockType>
class ResNet : public ImageModel {
 public:
  ResNet(const ModelOptions& options, const std::array<int, 4>& depths)
      : conv1_(register_module("conv1", MakeConv(options.in_channels, 64, 3, 1))),
        bn1_(register_module("bn1", nn::BatchNorm2d(64))) {
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

  at::Tensor forward(at::Tensor images) override {
    at::Tensor x = bn1_->forward(conv1_->forward(images)).relu_();
    for (auto& layer : layers_) x = layer->forward(x);
    return fc_->forward(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
  }

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  std::array<nn::Sequential, 4> layers_{nullptr, nullptr, nullptr, nullptr};
  nn::Linear fc_{nullptr};
};

}  // namespace

std::shared_ptr<ImageModel> MakeResNet18(const ModelOptions& options) {
  return std::make_shared<ResNet<BasicBlock>>(options, std::array{2, 2, 2, 2});
}

std::shared_ptr<ImageModel> MakeResNet34(const ModelOptions& options) {
  return std::make_shared<ResNet<BasicBlock>>(options, std::array{3, 4, 6, 3});
}

std::shared_ptr<ImageModel> MakeResNet50(const ModelOptions& options) {
  return std::make_shared<ResNet<Bottleneck>>(options, std::array{3, 4, 6, 3});
}

}  // namespace ddprun
