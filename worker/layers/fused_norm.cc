// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/fused_norm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "worker/layers/channels_last.h"

namespace ddprun {
namespace {

using norm::Tail;
using torch::autograd::AutogradContext;
using torch::autograd::Variable;

std::int64_t Rows(const at::Tensor& x) { return x.numel() / x.size(1); }

const float* Data(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<float>() : nullptr;
}

float* MutableData(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr<float>() : nullptr;
}

// Sums over rows by each thread for itself, then over the threads: `kinds` x channels doubles, in
// ATen's order of additions.
template <typename AddRows>
std::vector<double> SumRows(std::int64_t rows, std::int64_t channels, std::int64_t kinds,
                            const AddRows& add_rows) {
  const std::int64_t threads = at::get_num_threads();
  const std::int64_t width = kinds * channels;
  const at::Tensor partial = at::zeros({threads, width}, at::kFloat);
  auto* const sums = partial.mutable_data_ptr<float>();
  at::parallel_for(0, rows, 1, [&](std::int64_t begin, std::int64_t end) {
    add_rows(begin, end, sums + at::get_thread_num() * width);
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
  const std::int64_t rows = Rows(x);
  const float* data = Data(x);
  BatchStatistics statistics{at::empty({channels}, at::kFloat), at::empty({channels}, at::kFloat)};
  auto* const mean = MutableData(statistics.mean);
  auto* const inverse = MutableData(statistics.inverse);
  auto* const running_mean = MutableData(state.running_mean);
  auto* const running_variance = MutableData(state.running_variance);
  const auto sums =
      SumRows(rows, channels, 1, [&](std::int64_t begin, std::int64_t end, float* own) {
        norm::AddRows(data, channels, begin, end, own);
      });
  for (std::int64_t c = 0; c < channels; ++c)
    mean[c] = static_cast<float>(sums[static_cast<std::size_t>(c)] / static_cast<double>(rows));
  const auto squares =
      SumRows(rows, channels, 1, [&](std::int64_t begin, std::int64_t end, float* own) {
        norm::AddSquares(data, mean, channels, begin, end, own);
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
  norm::LinearTerms(Data(statistics.mean), Data(statistics.inverse), Data(weight), Data(bias),
                    channels, MutableData(linear.scale), MutableData(linear.offset));
  return linear;
}

struct Fused : torch::autograd::Function<Fused> {
  static Variable forward(AutogradContext* context, const Variable& x,
                          const std::optional<Variable>& shortcut, const Variable& weight,
                          const Variable& bias, const NormState& state, Tail tail) {
    const BatchStatistics statistics = Measure(x, state);
    const Linear linear = LinearOf(statistics, weight, bias);
    at::Tensor out = at::empty_like(x);
    const norm::Forward rows{.channels = x.size(1),
                             .x = Data(x),
                             .shortcut = shortcut ? Data(*shortcut) : nullptr,
                             .scale = Data(linear.scale),
                             .offset = Data(linear.offset),
                             .out = MutableData(out)};
    at::parallel_for(0, Rows(x), 1, [&](std::int64_t begin, std::int64_t end) {
      norm::Apply(rows, tail, begin, end);
    });
    context->save_for_backward({x, weight, statistics.mean, statistics.inverse, linear.scale,
                                linear.offset, tail == Tail::kAddRelu ? out : at::Tensor()});
    context->saved_data["tail"] = static_cast<std::int64_t>(tail);
    return out;
  }

  static std::vector<Variable> backward(AutogradContext* context, std::vector<Variable> gradients) {
    const auto saved = context->get_saved_variables();
    const auto tail = static_cast<Tail>(context->saved_data["tail"].toInt());
    const at::Tensor& x = saved[0];
    const at::Tensor gradient = gradients[0].contiguous(at::MemoryFormat::ChannelsLast);
    const std::int64_t channels = x.size(1);
    const auto width = static_cast<std::size_t>(channels);
    at::Tensor shortcut_gradient;
    if (tail == Tail::kReluAdd) shortcut_gradient = gradients[0];
    if (tail == Tail::kAddRelu) shortcut_gradient = at::empty_like(x);
    const norm::Backward rows{
        .channels = channels,
        .x = Data(x),
        .out = Data(saved[6]),
        .gradient = Data(gradient),
        .mean = Data(saved[2]),
        .scale = Data(saved[4]),
        .offset = Data(saved[5]),
        .shortcut_gradient = tail == Tail::kAddRelu ? MutableData(shortcut_gradient) : nullptr};
    const auto sums =
        SumRows(Rows(x), channels, 2, [&](std::int64_t begin, std::int64_t end, float* own) {
          norm::AddGradients(rows, tail, begin, end, own, own + channels);
        });

    at::Tensor weight_gradient = at::empty({channels}, at::kFloat);
    at::Tensor bias_gradient = at::empty({channels}, at::kFloat);
    std::vector<float> mean_gradient(width);
    std::vector<float> slope(width);
    const float* inverse = Data(saved[3]);
    const auto count = static_cast<float>(Rows(x));
    for (std::size_t c = 0; c < width; ++c) {
      const auto sum = static_cast<float>(sums[c]);
      const auto product = static_cast<float>(sums[width + c]);
      MutableData(bias_gradient)[c] = sum;
      MutableData(weight_gradient)[c] = product * inverse[c];
      mean_gradient[c] = sum / count;
      slope[c] = product * inverse[c] * inverse[c] / count;
    }
    at::Tensor x_gradient = at::empty_like(x);
    const norm::Correction correction{.mean_gradient = mean_gradient.data(),
                                      .slope = slope.data(),
                                      .inverse = inverse,
                                      .weight = Data(saved[1])};
    at::parallel_for(0, Rows(x), 1, [&](std::int64_t begin, std::int64_t end) {
      norm::ApplyGradients(rows, correction, tail, begin, end, MutableData(x_gradient));
    });
    return {x_gradient, shortcut_gradient, weight_gradient, bias_gradient, {}, {}};
  }
};

}  // namespace

bool CanFuseNorm(const at::Tensor& x, const at::Tensor& shortcut, const NormState& state) {
  if (!IsChannelsLastFloat(x) || x.numel() == 0 || Rows(x) < 2) return false;
  if (shortcut.defined() && (!IsChannelsLastFloat(shortcut) || shortcut.sizes() != x.sizes()))
    return false;
  for (const at::Tensor* kept :
       {&state.weight, &state.bias, &state.running_mean, &state.running_variance}) {
    if (!kept->defined() || kept->scalar_type() != at::kFloat) return false;
  }
  return true;
}

at::Tensor FusedNorm(const at::Tensor& x, const at::Tensor& shortcut, const NormState& state,
                     Tail tail) {
  const auto added = shortcut.defined() ? std::optional(shortcut) : std::nullopt;
  return Fused::apply(x, added, state.weight, state.bias, state, tail);
}

}  // namespace ddprun
