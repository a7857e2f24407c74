// SPDX-License-Identifier: Apache-2.0
// A model's first convolution, of images that may have more channels than it has: those past its
// own must be zero (--pad-channels). The parameter keeps its channels; a copy with zeros added is
// multiplied.
#pragma once

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv2d.h>
#include <torch/nn/functional/conv.h>
#include <torch/nn/modules/conv.h>

namespace ddprun {

// `weight` with zeros for the channels that it lacks for `images`; itself where it lacks none.
inline at::Tensor PadWeight(const at::Tensor& weight, const at::Tensor& images) {
  const std::int64_t missing = images.size(1) - weight.size(1);
  if (missing == 0) return weight;
  return at::constant_pad_nd(weight, {0, 0, 0, 0, 0, missing})
      .contiguous(images.suggest_memory_format());
}

// conv->forward(images).
inline at::Tensor PaddedForward(torch::nn::Conv2d& conv, const at::Tensor& images) {
  if (images.size(1) == conv->weight.size(1)) return conv->forward(images);
  const auto& options = conv->options;
  return torch::nn::functional::detail::conv2d(images, PadWeight(conv->weight, images), conv->bias,
                                               options.stride(), options.padding(),
                                               options.dilation(), options.groups());
}

}  // namespace ddprun
