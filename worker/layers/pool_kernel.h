// SPDX-License-Identifier: Apache-2.0
// Max-pooling of 2x2 pixels with a stride of 2 over channels-last images, and ReLU with it. Which
// pixel of four is the largest is found again in backward, so no index is kept. ATen's rules: of
// equal ones the first, a NaN always. Pure loops.
#pragma once

#include <cstdint>

namespace ddprun::pool {

// Images of 2 `height` x 2 `width` pixels become height x width. A row is one of the output, of all
// images one after the other.
struct Shape {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;
  bool relu = false;
};

void Forward(const Shape& shape, const float* x, std::int64_t begin, std::int64_t end, float* out);

// Writes the two rows of the gradient of x that belong to each row of the output.
void Backward(const Shape& shape, const float* x, const float* gradient, std::int64_t begin,
              std::int64_t end, float* x_gradient);

}  // namespace ddprun::pool
