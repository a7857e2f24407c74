// SPDX-License-Identifier: Apache-2.0
// Batch norm in training together with what follows it in a residual network, over rows of channels
// (pixels of channels-last images): fewer passes over the activations than one operation after the
// other makes. The roundings are those of ATen's batch_norm, relu, add and their backwards
// (aten/src/ATen/native/cpu/batch_norm_kernel.cpp), so the results are the same bits. Pure loops;
// a caller with several threads gives each its rows.
#pragma once

#include <cstdint>

namespace ddprun::norm {

enum class Tail {
  kRelu,     // relu(norm(x))
  kReluAdd,  // relu(norm(x)) + shortcut
  kAddRelu,  // relu(norm(x) + shortcut)
};

// Of one call; arrays of images are rows x channels, of numbers channels.
struct Forward {
  std::int64_t channels = 0;
  const float* x = nullptr;
  const float* shortcut = nullptr;  // null with kRelu
  const float* scale = nullptr;     // inverse deviation * weight
  const float* offset = nullptr;    // bias - mean * scale
  float* out = nullptr;
};

struct Backward {
  std::int64_t channels = 0;
  const float* x = nullptr;
  const float* out = nullptr;  // of forward; only with kAddRelu
  const float* gradient = nullptr;
  const float* mean = nullptr;
  const float* scale = nullptr;
  const float* offset = nullptr;
  float* shortcut_gradient = nullptr;  // only with kAddRelu; the first pass writes it
};

// What the second pass takes away and multiplies with, for each channel.
struct Correction {
  const float* mean_gradient = nullptr;
  const float* slope = nullptr;
  const float* inverse = nullptr;
  const float* weight = nullptr;
};

// sums[c] += the values of channel c in rows [begin, end), row after row.
void AddRows(const float* x, std::int64_t channels, std::int64_t begin, std::int64_t end,
             float* sums);

// sums[c] += their squared distances from mean[c].
void AddSquares(const float* x, const float* mean, std::int64_t channels, std::int64_t begin,
                std::int64_t end, float* sums);

// scale = inverse * weight, offset = bias - mean * scale.
void LinearTerms(const float* mean, const float* inverse, const float* weight, const float* bias,
                 std::int64_t channels, float* scale, float* offset);

void Apply(const Forward& forward, Tail tail, std::int64_t begin, std::int64_t end);

// sums[c] += the gradients that reach the norm; products[c] += they times (x - mean).
void AddGradients(const Backward& backward, Tail tail, std::int64_t begin, std::int64_t end,
                  float* sums, float* products);

// The gradient of x; AddGradients() must have seen all rows.
void ApplyGradients(const Backward& backward, const Correction& correction, Tail tail,
                    std::int64_t begin, std::int64_t end, float* x_gradient);

}  // namespace ddprun::norm
