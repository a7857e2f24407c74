// SPDX-License-Identifier: Apache-2.0
#include "worker/train/layers/fused_norm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <utility>
#include <vector>

#include "worker/library/base/for_each_cpu.h"

namespace ddprun {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;

// `value` where relu lets gradients of an activation through, or the activation itself. NaN stays
// NaN and lets them through, as in ATen.
[[gnu::always_inline]] inline float WhereAlive(float activation, float value) {
  return activation <= 0.0f ? 0.0f : value;
}

// The loops over rows [begin, end) of channels (pixels of channels-last images); a caller with
// several threads gives each its rows.

// sums[c] += the values of channel c, row after row.
DDPRUN_FOR_EACH_CPU
void AddRows(const float* __restrict x, std::int64_t channels, std::int64_t begin, std::int64_t end,
             float* __restrict sums) {
  for (std::int64_t row = begin; row < end; ++row) {
    for (std::int64_t c = 0; c < channels; ++c) sums[c] += x[row * channels + c];
  }
}

// sums[c] += their squared distances from mean[c].
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

// scale = inverse * weight, offset = bias - mean * scale.
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

DDPRUN_FOR_EACH_CPU
void Apply(const float* __restrict x, const float* __restrict shortcut,
           const float* __restrict scale, const float* __restrict offset, std::int64_t channels,
           std::int64_t begin, std::int64_t end, float* __restrict out) {
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * channels;
    for (std::int64_t c = 0; c < channels; ++c) {
      const float value = x[at + c] * scale[c] + offset[c];
      out[at + c] = WhereAlive(value, value) + shortcut[at + c];
    }
  }
}

// Input of a backward: arrays of rows x channels, and of channels.
struct Rows {
  std::int64_t channels = 0;
  const float* x = nullptr;
  const float* gradient = nullptr;
  const float* mean = nullptr;
  const float* scale = nullptr;
  const float* offset = nullptr;
};

// sums[c] += the gradients that reach the norm; products[c] += they times (x - mean).
DDPRUN_FOR_EACH_CPU
void AddGradients(const Rows& rows, std::int64_t begin, std::int64_t end, float* __restrict sums,
                  float* __restrict products) {
  const float* __restrict x = rows.x;
  const float* __restrict given = rows.gradient;
  const float* __restrict mean = rows.mean;
  const float* __restrict scale = rows.scale;
  const float* __restrict offset = rows.offset;
  const std::int64_t channels = rows.channels;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * channels;
    for (std::int64_t c = 0; c < channels; ++c) {
      const float gradient = WhereAlive(x[at + c] * scale[c] + offset[c], given[at + c]);
      sums[c] += gradient;
      products[c] += (x[at + c] - mean[c]) * gradient;
    }
  }
}

// What the second pass takes away and multiplies with, for each channel.
struct Correction {
  const float* mean_gradient = nullptr;
  const float* slope = nullptr;
  const float* inverse = nullptr;
  const float* weight = nullptr;
};

// The gradient of x; AddGradients() must have seen all rows.
DDPRUN_FOR_EACH_CPU
void ApplyGradients(const Rows& rows, const Correction& correction, std::int64_t begin,
                    std::int64_t end, float* __restrict x_gradient) {
  const float* __restrict x = rows.x;
  const float* __restrict given = rows.gradient;
  const float* __restrict mean = rows.mean;
  const float* __restrict scale = rows.scale;
  const float* __restrict offset = rows.offset;
  const float* __restrict mean_gradient = correction.mean_gradient;
  const float* __restrict slope = correction.slope;
  const float* __restrict inverse = correction.inverse;
  const float* __restrict weight = correction.weight;
  const std::int64_t channels = rows.channels;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * channels;
    for (std::int64_t c = 0; c < channels; ++c) {
      const float gradient = WhereAlive(x[at + c] * scale[c] + offset[c], given[at + c]);
      const float part = (x[at + c] - mean[c]) * slope[c];
      x_gradient[at + c] = (gradient - mean_gradient[c] - part) * inverse[c] * weight[c];
    }
  }
}

std::int64_t CountRows(const at::Tensor& x) { return x.numel() / x.size(1); }

const float* Data(const at::Tensor& tensor) { return tensor.const_data_ptr<float>(); }
float* MutableData(const at::Tensor& tensor) { return tensor.mutable_data_ptr<float>(); }

// Sums over rows by each thread for itself, then over the threads: `kinds` x channels doubles, in
// ATen's order of additions.
template <typename AddOwn>
std::vector<double> SumRows(std::int64_t rows, std::int64_t channels, std::int64_t kinds,
                            const AddOwn& add_own) {
  const std::int64_t threads = at::get_num_threads();
  const std::int64_t width = kinds * channels;
  const at::Tensor partial = at::zeros({threads, width}, at::kFloat);
  auto* const sums = partial.mutable_data_ptr<float>();
  at::parallel_for(0, rows, 1, [&](std::int64_t begin, std::int64_t end) {
    add_own(begin, end, sums + at::get_thread_num() * width);
  });
  std::vector<double> total(static_cast<std::size_t>(width), 0.0);
  for (std::int64_t thread = 0; thread < threads; ++thread) {
    for (std::int64_t i = 0; i < width; ++i)
      total[static_cast<std::size_t>(i)] += static_cast<double>(sums[thread * width + i]);
  }
  return total;
}

struct BatchStatistics {
  at::Tensor mean;
  at::Tensor inverse;  // of the deviation
};

// The batch's statistics; updates the running ones.
BatchStatistics Measure(const at::Tensor& x, const NormState& state) {
  const std::int64_t channels = x.size(1);
  const std::int64_t rows = CountRows(x);
  const float* data = Data(x);
  BatchStatistics statistics{at::empty({channels}, at::kFloat), at::empty({channels}, at::kFloat)};
  auto* const mean = MutableData(statistics.mean);
  auto* const inverse = MutableData(statistics.inverse);
  auto* const running_mean = MutableData(state.running_mean);
  auto* const running_variance = MutableData(state.running_variance);
  const auto sums =
      SumRows(rows, channels, 1, [&](std::int64_t begin, std::int64_t end, float* own) {
        AddRows(data, channels, begin, end, own);
      });
  for (std::int64_t c = 0; c < channels; ++c)
    mean[c] = static_cast<float>(sums[static_cast<std::size_t>(c)] / static_cast<double>(rows));
  const auto squares =
      SumRows(rows, channels, 1, [&](std::int64_t begin, std::int64_t end, float* own) {
        AddSquares(data, mean, channels, begin, end, own);
      });
  // Floats where ATen has floats, doubles where it has doubles.
  const auto momentum = static_cast<float>(state.momentum);
  const float others = 1 - momentum;
  for (std::int64_t c = 0; c < channels; ++c) {
    const auto sum = static_cast<float>(squares[static_cast<std::size_t>(c)]);
    const double variance = sum / static_cast<float>(rows);
    inverse[c] = static_cast<float>(1 / std::sqrt(variance + state.eps));
    running_mean[c] = momentum * mean[c] + others * running_mean[c];
    const double unbiased = sum / static_cast<float>(rows - 1);
    running_variance[c] = static_cast<float>(static_cast<double>(momentum) * unbiased +
                                             static_cast<double>(others * running_variance[c]));
  }
  return statistics;
}

struct Linear {
  at::Tensor scale;
  at::Tensor offset;
};

Linear LinearOf(const BatchStatistics& statistics, const at::Tensor& weight,
                const at::Tensor& bias) {
  const std::int64_t channels = weight.numel();
  Linear linear{at::empty({channels}, at::kFloat), at::empty({channels}, at::kFloat)};
  LinearTerms(Data(statistics.mean), Data(statistics.inverse), Data(weight), Data(bias), channels,
              MutableData(linear.scale), MutableData(linear.offset));
  return linear;
}

struct Fused : torch::autograd::Function<Fused> {
  static Variable forward(AutogradContext* context, const Variable& x, const Variable& shortcut,
                          const Variable& weight, const Variable& bias, const NormState& state) {
    const BatchStatistics statistics = Measure(x, state);
    const Linear linear = LinearOf(statistics, weight, bias);
    at::Tensor out = at::empty_like(x);
    at::parallel_for(0, CountRows(x), 1, [&](std::int64_t begin, std::int64_t end) {
      Apply(Data(x), Data(shortcut), Data(linear.scale), Data(linear.offset), x.size(1), begin, end,
            MutableData(out));
    });
    context->save_for_backward(
        {x, weight, statistics.mean, statistics.inverse, linear.scale, linear.offset});
    return out;
  }

  static std::vector<Variable> backward(AutogradContext* context, std::vector<Variable> gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor gradient = gradients[0].contiguous(at::MemoryFormat::ChannelsLast);
    const std::int64_t channels = x.size(1);
    const auto width = static_cast<std::size_t>(channels);
    const Rows rows{.channels = channels,
                    .x = Data(x),
                    .gradient = Data(gradient),
                    .mean = Data(saved[2]),
                    .scale = Data(saved[4]),
                    .offset = Data(saved[5])};
    const auto sums =
        SumRows(CountRows(x), channels, 2, [&](std::int64_t begin, std::int64_t end, float* own) {
          AddGradients(rows, begin, end, own, own + channels);
        });

    at::Tensor weight_gradient = at::empty({channels}, at::kFloat);
    at::Tensor bias_gradient = at::empty({channels}, at::kFloat);
    std::vector<float> mean_gradient(width);
    std::vector<float> slope(width);
    const float* inverse = Data(saved[3]);
    const auto count = static_cast<float>(CountRows(x));
    for (std::size_t c = 0; c < width; ++c) {
      const auto sum = static_cast<float>(sums[c]);
      const auto product = static_cast<float>(sums[width + c]);
      MutableData(bias_gradient)[c] = sum;
      MutableData(weight_gradient)[c] = product * inverse[c];
      mean_gradient[c] = sum / count;
      slope[c] = product * inverse[c] * inverse[c] / count;
    }
    at::Tensor x_gradient = at::empty_like(x);
    const Correction correction{.mean_gradient = mean_gradient.data(),
                                .slope = slope.data(),
                                .inverse = inverse,
                                .weight = Data(saved[1])};
    at::parallel_for(0, CountRows(x), 1, [&](std::int64_t begin, std::int64_t end) {
      ApplyGradients(rows, correction, begin, end, MutableData(x_gradient));
    });
    return {x_gradient, gradients[0], weight_gradient, bias_gradient, {}};
  }
};

bool IsChannelsLastFloat(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.scalar_type() == at::kFloat && tensor.dim() == 4 &&
         tensor.is_contiguous(at::MemoryFormat::ChannelsLast);
}

}  // namespace

bool CanFuseNorm(const at::Tensor& x, const at::Tensor& shortcut, const NormState& state) {
  if (!IsChannelsLastFloat(x) || x.numel() == 0 || CountRows(x) < 2) return false;
  if (!IsChannelsLastFloat(shortcut) || shortcut.sizes() != x.sizes()) return false;
  for (const at::Tensor* kept :
       {&state.weight, &state.bias, &state.running_mean, &state.running_variance}) {
    if (!kept->defined() || kept->scalar_type() != at::kFloat) return false;
  }
  return true;
}

at::Tensor NormReluAdd(const at::Tensor& x, const at::Tensor& shortcut, const NormState& state) {
  return Fused::apply(x, shortcut, state.weight, state.bias, state);
}

}  // namespace ddprun
