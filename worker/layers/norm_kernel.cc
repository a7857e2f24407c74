// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/norm_kernel.h"

#include "worker/base/for_each_cpu.h"

namespace ddprun::norm {
namespace {

// `value` where relu lets gradients of an activation through, or the activation itself. NaN stays
// NaN and lets them through, as in ATen.
[[gnu::always_inline]] inline float WhereAlive(float activation, float value) {
  return activation <= 0.0f ? 0.0f : value;
}

[[gnu::always_inline]] inline void ApplyRow(const Forward& f, Tail tail, std::int64_t at) {
  const float* __restrict x = f.x + at;
  const float* __restrict shortcut = tail == Tail::kRelu ? nullptr : f.shortcut + at;
  const float* __restrict scale = f.scale;
  const float* __restrict offset = f.offset;
  float* __restrict out = f.out + at;
  for (std::int64_t c = 0; c < f.channels; ++c) {
    float value = x[c] * scale[c] + offset[c];
    if (tail == Tail::kAddRelu) value += shortcut[c];
    value = WhereAlive(value, value);
    if (tail == Tail::kReluAdd) value += shortcut[c];
    out[c] = value;
  }
}

[[gnu::always_inline]] inline void AddGradientRow(const Backward& b, Tail tail, std::int64_t at,
                                                  float* __restrict sums,
                                                  float* __restrict products) {
  const float* __restrict x = b.x + at;
  const float* __restrict given = b.gradient + at;
  const float* __restrict out = tail == Tail::kAddRelu ? b.out + at : nullptr;
  const float* __restrict scale = b.scale;
  const float* __restrict offset = b.offset;
  const float* __restrict mean = b.mean;
  float* __restrict to_shortcut = tail == Tail::kAddRelu ? b.shortcut_gradient + at : nullptr;
  for (std::int64_t c = 0; c < b.channels; ++c) {
    const float activation = tail == Tail::kAddRelu ? out[c] : x[c] * scale[c] + offset[c];
    const float gradient = WhereAlive(activation, given[c]);
    if (tail == Tail::kAddRelu) to_shortcut[c] = gradient;
    sums[c] += gradient;
    products[c] += (x[c] - mean[c]) * gradient;
  }
}

[[gnu::always_inline]] inline void ApplyGradientRow(const Backward& b, const Correction& k,
                                                    Tail tail, std::int64_t at,
                                                    float* __restrict x_gradient) {
  const float* __restrict x = b.x + at;
  const float* __restrict given = (tail == Tail::kAddRelu ? b.shortcut_gradient : b.gradient) + at;
  const float* __restrict scale = b.scale;
  const float* __restrict offset = b.offset;
  const float* __restrict mean = b.mean;
  const float* __restrict mean_gradient = k.mean_gradient;
  const float* __restrict slope = k.slope;
  const float* __restrict inverse = k.inverse;
  const float* __restrict weight = k.weight;
  for (std::int64_t c = 0; c < b.channels; ++c) {
    const float gradient =
        tail == Tail::kAddRelu ? given[c] : WhereAlive(x[c] * scale[c] + offset[c], given[c]);
    const float part = (x[c] - mean[c]) * slope[c];
    x_gradient[at + c] = (gradient - mean_gradient[c] - part) * inverse[c] * weight[c];
  }
}

}  // namespace

DDPRUN_FOR_EACH_CPU
void AddRows(const float* __restrict x, std::int64_t channels, std::int64_t begin, std::int64_t end,
             float* __restrict sums) {
  for (std::int64_t row = begin; row < end; ++row) {
    for (std::int64_t c = 0; c < channels; ++c) sums[c] += x[row * channels + c];
  }
}

DDPRUN_FOR_EACH_CPU
void AddSquares(const float* __restrict x, const float* __restrict mean, std::int64_t channels,
                std::int64_t begin, std::int64_t end, float* __restrict sums) {
  for (std::int64_t row = begin; row < end; ++row) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const float distance = x[row * channels + c] - mean[c];
      sums[c] += distance * distance;
    }
  }
}

DDPRUN_FOR_EACH_CPU
void LinearTerms(const float* __restrict mean, const float* __restrict inverse,
                 const float* __restrict weight, const float* __restrict bias,
                 std::int64_t channels, float* __restrict scale, float* __restrict offset) {
  for (std::int64_t c = 0; c < channels; ++c) {
    const float product = inverse[c] * weight[c];
    scale[c] = product;
    offset[c] = bias[c] - mean[c] * product;
  }
}

// A loop for each tail, so that none asks in its innermost line.
DDPRUN_FOR_EACH_CPU
void Apply(const Forward& forward, Tail tail, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * forward.channels;
    if (tail == Tail::kRelu) ApplyRow(forward, Tail::kRelu, at);
    if (tail == Tail::kReluAdd) ApplyRow(forward, Tail::kReluAdd, at);
    if (tail == Tail::kAddRelu) ApplyRow(forward, Tail::kAddRelu, at);
  }
}

DDPRUN_FOR_EACH_CPU
void AddGradients(const Backward& backward, Tail tail, std::int64_t begin, std::int64_t end,
                  float* sums, float* products) {
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * backward.channels;
    if (tail == Tail::kAddRelu)
      AddGradientRow(backward, Tail::kAddRelu, at, sums, products);
    else
      AddGradientRow(backward, Tail::kRelu, at, sums, products);
  }
}

DDPRUN_FOR_EACH_CPU
void ApplyGradients(const Backward& backward, const Correction& correction, Tail tail,
                    std::int64_t begin, std::int64_t end, float* x_gradient) {
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * backward.channels;
    if (tail == Tail::kAddRelu)
      ApplyGradientRow(backward, correction, Tail::kAddRelu, at, x_gradient);
    else
      ApplyGradientRow(backward, correction, Tail::kRelu, at, x_gradient);
  }
}

}  // namespace ddprun::norm
