// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/conv.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/init.h>

#include <vector>

#include "worker/layers/channels_last.h"

namespace ddprun {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;

// Where the product was the faster one on the machine it was measured on (AVX-512, one thread): 16
// images of 4x4 pixels and 512 channels took 14 instead of 31 ms, 16 of 8x8 and 256 channels 14
// instead of 11.
constexpr std::int64_t kPixelsMax = 512;
constexpr std::int64_t kChannelsMin = 384;  // the mean of those that come in and go out

struct Geometry {
  std::int64_t stride = 1;
  std::int64_t padding = 0;

  std::int64_t Out(std::int64_t side, std::int64_t kernel) const {
    return (side + 2 * padding - kernel) / stride + 1;
  }
};

// Rows are pixels of the output; columns what each of them sees, as the weights lie:
// kernel rows x kernel columns x channels.
at::Tensor Unfold(const at::Tensor& x, const at::Tensor& out, std::int64_t kernel,
                  const Geometry& geometry) {
  const std::int64_t pad = geometry.padding;
  const at::Tensor padded =
      at::constant_pad_nd(x.permute({0, 2, 3, 1}), {0, 0, pad, pad, pad, pad}).contiguous();
  const auto step = padded.strides();
  const std::int64_t channels = x.size(1);
  return padded
      .as_strided({out.size(0), out.size(2), out.size(3), kernel, kernel, channels},
                  {step[0], step[1] * geometry.stride, step[2] * geometry.stride, step[1], step[2],
                   step[3]})
      .reshape({-1, kernel * kernel * channels});
}

struct ByProduct : torch::autograd::Function<ByProduct> {
  static Variable forward(AutogradContext* context, const Variable& x, const Variable& weight,
                          const Geometry& geometry) {
    context->save_for_backward({x, weight});
    context->saved_data["stride"] = geometry.stride;
    context->saved_data["padding"] = geometry.padding;
    return at::conv2d(x, weight, {}, geometry.stride, geometry.padding);
  }

  static std::vector<Variable> backward(AutogradContext* context, std::vector<Variable> gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const Geometry geometry{context->saved_data["stride"].toInt(),
                            context->saved_data["padding"].toInt()};
    const at::Tensor gradient = gradients[0].contiguous(at::MemoryFormat::ChannelsLast);
    const std::int64_t kernel = weight.size(2);
    const at::Tensor pixels = gradient.permute({0, 2, 3, 1}).reshape({-1, gradient.size(1)});
    const at::Tensor weight_gradient = at::mm(pixels.t(), Unfold(x, gradient, kernel, geometry))
                                           .view({weight.size(0), kernel, kernel, weight.size(1)})
                                           .permute({0, 3, 1, 2});
    const at::Tensor x_gradient = std::get<0>(at::convolution_backward(
        gradient, x, weight, /*bias_sizes=*/{}, {geometry.stride, geometry.stride},
        {geometry.padding, geometry.padding}, /*dilation=*/{1, 1}, /*transposed=*/false,
        /*output_padding=*/{0, 0}, /*groups=*/1, {true, false, false}));
    return {x_gradient, weight_gradient, {}};
  }
};

}  // namespace

ConvImpl::ConvImpl(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride)
    : weight(register_parameter("weight", at::empty({out, in, kernel, kernel}))), stride_(stride) {
  torch::nn::init::kaiming_normal_(weight, 0.0, torch::kFanOut, torch::kReLU);
}

at::Tensor ConvImpl::forward(const at::Tensor& x) {
  const std::int64_t kernel = weight.size(2);
  const Geometry geometry{stride_, kernel / 2};
  const bool wide = kernel > 1 && weight.size(0) + weight.size(1) >= 2 * kChannelsMin;
  if (wide && is_training() && x.requires_grad() && IsChannelsLastFloat(x) &&
      IsChannelsLastFloat(weight) && !at::autocast::is_autocast_enabled(at::kCPU)) {
    const std::int64_t pixels =
        x.size(0) * geometry.Out(x.size(2), kernel) * geometry.Out(x.size(3), kernel);
    if (pixels <= kPixelsMax) return ByProduct::apply(x, weight, geometry);
  }
  return at::conv2d(x, weight, {}, geometry.stride, geometry.padding);
}

}  // namespace ddprun
