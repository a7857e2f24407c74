// SPDX-License-Identifier: Apache-2.0
// The network of the fastest public trainings to 94 % on CIFAR-10: CifarNet of Keller Jordan's
// cifar10-airbench (airbench94_muon, 2024), with its names. A convolution of 2x2 whose filters
// whiten the training images and are not trained; three groups of conv, pool, norm, GELU, conv,
// norm, GELU; the largest of what is left of each channel; a linear head.
//
// - The groups' convolutions begin as the identity on the channels that come in, and at random on
//   those that are added.
// - Batch norms have no weight to train, and statistics that follow the batches quickly, as the
//   training is short.
// - The head's scores are divided by its inputs, and its weights begin so much larger.
#include <ATen/ops/max_pool2d.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cmath>

#include "worker/train/layers/batch_norm.h"
#include "worker/train/layers/padded_conv.h"
#include "worker/train/models/models.h"
#include "worker/train/speedrun/whitening.h"

namespace ddprun {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kWhitenKernel = 2;
constexpr std::int64_t kWhitenImages = 5000;
constexpr double kWhitenEps = 5e-4;
constexpr double kNormEps = 1e-12;
constexpr double kNormMomentum = 1 - 0.6;     // the share of the new batch
constexpr std::int64_t kAirbenchSideMin = 9;  // leaves a pixel after the whitening and three pools

std::int64_t Channels(double count, double width) {
  return std::max<std::int64_t>(1, std::llround(count * width));
}

class ConvGroupImpl : public nn::Module {
 public:
  ConvGroupImpl(std::int64_t in, std::int64_t out)
      : conv1_(MakeConv("conv1", in, out)),
        norm1_(MakeNorm("norm1", out)),
        conv2_(MakeConv("conv2", out, out)),
        norm2_(MakeNorm("norm2", out)) {}

  // `nothing`, if defined, is a zero that is added to the first convolution's weights.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& nothing = {}) {
    at::Tensor out = nothing.defined()
                         ? at::conv2d(x, conv1_->weight + nothing, /*bias=*/{}, /*stride=*/1,
                                      /*padding=*/1)
                         : conv1_->forward(x);
    out = norm1_->PoolGelu(out);
    return norm2_->Gelu(conv2_->forward(out));
  }

 private:
  nn::Conv2d MakeConv(const std::string& name, std::int64_t in, std::int64_t out) {
    auto conv = register_module(
        name, nn::Conv2d(nn::Conv2dOptions(in, out, /*kernel_size=*/3).padding(1).bias(false)));
    const torch::NoGradGuard no_grad;
    nn::init::dirac_(conv->weight.narrow(0, 0, std::min(in, out)));
    return conv;
  }

  BatchNorm MakeNorm(const std::string& name, std::int64_t channels) {
    auto norm = register_module(
        name, BatchNorm(nn::BatchNorm2dOptions(channels).eps(kNormEps).momentum(kNormMomentum)));
    norm->weight.set_requires_grad(false);
    return norm;
  }

  nn::Conv2d conv1_;
  BatchNorm norm1_;
  nn::Conv2d conv2_;
  BatchNorm norm2_;
};
TORCH_MODULE(ConvGroup);

// torch.nn.Sequential's names, of which the first (a GELU) and the last (a pool) have no tensors.
class GroupsImpl : public nn::Module {
 public:
  GroupsImpl(std::int64_t in, double width)
      : first(register_module("1", ConvGroup(in, Channels(64, width)))),
        second(register_module("2", ConvGroup(Channels(64, width), Channels(256, width)))),
        third(register_module("3", ConvGroup(Channels(256, width), Channels(256, width)))) {}

  ConvGroup first;
  ConvGroup second;
  ConvGroup third;
};
TORCH_MODULE(Groups);

class Airbench : public ImageModel {
 public:
  explicit Airbench(const ModelOptions& options)
      : whiten_epochs_(options.whiten_epochs),
        covariance_(options.in_channels, kWhitenKernel),
        whiten_(register_module(
            "whiten",
            nn::Conv2d(nn::Conv2dOptions(options.in_channels,
                                         2 * options.in_channels * kWhitenKernel * kWhitenKernel,
                                         kWhitenKernel)))),
        layers_(register_module("layers", Groups(whiten_->weight.size(0), options.widening))),
        head_(register_module(
            "head",
            nn::Linear(
                nn::LinearOptions(Channels(256, options.widening), options.classes).bias(false)))) {
    const torch::NoGradGuard no_grad;
    whiten_->weight.set_requires_grad(false);
    head_->weight.div_(head_->weight.std());
  }

  bool begins_in_autocast() const override { return true; }
  bool takes_padded_images() const override { return true; }

  std::vector<ModelPart> Parts() override {
    return {{"whiten", {"whiten", "layers.1"}, [this](const at::Tensor& x) { return Begin(x); }},
            {"layers.2",
             {"layers.2"},
             [this](const at::Tensor& x) { return layers_->second->forward(x); }},
            {"layers.3",
             {"layers.3"},
             [this](const at::Tensor& x) { return layers_->third->forward(x); }},
            {"head", {"head"}, [this](const at::Tensor& x) {
               // All that is left: 3x3 of 32x32.
               const at::Tensor features = at::max_pool2d(x, {x.size(2), x.size(3)}).flatten(1);
               return head_->forward(features) / static_cast<double>(features.size(1));
             }}};
  }

  std::int64_t calibration_images() const override { return kWhitenImages; }

  void Calibrate(const at::Tensor& images) override {
    covariance_.Add(images);
    const torch::NoGradGuard no_grad;
    whiten_->weight.copy_(covariance_.Filters(kWhitenEps));
  }

  std::int64_t Advance(double epochs) override {
    trains_whitening_ = epochs < whiten_epochs_;
    return trains_whitening_ ? 0 : 1;
  }
  std::vector<double> ForwardChanges() const override { return {whiten_epochs_}; }

 private:
  at::Tensor Begin(const at::Tensor& x) {
    if (trains_whitening_ || !is_training())
      return layers_->first->forward(at::gelu(PaddedForward(whiten_, x)));
    // Nothing before the first group is trained any more, and backward need not go there, through
    // the largest images of all. The biases get a gradient of zero by another way, since a reducer
    // waits for one of each parameter.
    const at::Tensor whitened =
        at::conv2d(x, PadWeight(whiten_->weight, x), whiten_->bias.detach());
    return layers_->first->forward(at::gelu(whitened), whiten_->bias.sum() * 0);
  }

  const double whiten_epochs_;
  bool trains_whitening_ = true;
  PatchCovariance covariance_;
  nn::Conv2d whiten_;
  Groups layers_;
  nn::Linear head_;
};

std::shared_ptr<ImageModel> MakeAirbench(const ModelOptions& options) {
  RequireImageSize("airbench", options, kAirbenchSideMin);
  return std::make_shared<Airbench>(options);
}

const bool kAirbenchAdded = Models().Add("airbench", MakeAirbench);

}  // namespace

}  // namespace ddprun
