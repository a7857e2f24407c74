// SPDX-License-Identifier: Apache-2.0
// The ResNets' convolution.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

namespace ddprun {

// A convolution with a square kernel, padded to keep the size, and no bias: torch.nn.Conv2d's names
// and numbers. Its weights begin as torchvision's ResNets' do, and only so: Conv2d would draw them
// twice, which is a tenth of a second of a ResNet-18's start.
//
// Where few pixels meet many channels, as in a ResNet's last layers with a small batch, the
// weights' gradient is one matrix product instead of oneDNN's kernel, whose inner loop runs along a
// row of pixels: half of its time, and the result comes in the order in which channels-last weights
// lie. The sums have another order, so the last digit may differ.
class ConvImpl : public torch::nn::Module {
 public:
  ConvImpl(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride);

  // N x in x height x width; `stride` times smaller, N x out x height x width.
  at::Tensor forward(const at::Tensor& x);

  at::Tensor weight;  // out x in x kernel x kernel

 private:
  const std::int64_t stride_;
};
TORCH_MODULE(Conv);

}  // namespace ddprun
