// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/gpu_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>
#include <vector>

#include "worker/kernels/kernels.h"
#include "worker/layers/max_pool.h"

namespace ddprun {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;

// As norm_rows.cuh has them.
constexpr std::int64_t kThreads = 256;
constexpr std::int64_t kLanesMax = 32;
constexpr std::int64_t kCombineChannels = 8;
constexpr std::int64_t kPackBytes = 16;
// Blocks of a multiprocessor: multiples of those that its registers have room for at a time (4, 2
// or 3, and 4 or 3), and few where their results must be combined.
constexpr std::int64_t kBlocksOfMoments = 4;
constexpr std::int64_t kBlocksOfGradientSums = 6;
constexpr std::int64_t kBlocksOfOthers = 12;

// What backward needs beside tensors, in the form that an autograd context can hold.
struct SumHolder : torch::CustomClassHolder {
  explicit SumHolder(SumOverRanks of_sum) : sum(std::move(of_sum)) {}
  const SumOverRanks sum;
};

// How the kernels of one tensor are launched.
struct Layout {
  long long rows = 0;
  int channels = 0;
  int lanes = 0;   // columns of threads in a block
  int packed = 0;  // a thread has as many channels as 16 bytes hold, else one
  std::int64_t blocks_y = 1;
};

std::int64_t CeilDiv(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

LaunchShape ShapeOf(const Layout& layout, const KernelLauncher& launcher,
                    std::int64_t blocks_each) {
  const std::int64_t most =
      std::max<std::int64_t>(1, blocks_each * launcher.multiprocessors() / layout.blocks_y);
  const std::int64_t blocks = std::min(most, CeilDiv(layout.rows, kThreads / layout.lanes));
  return {.blocks = static_cast<unsigned>(blocks),
          .blocks_y = static_cast<unsigned>(layout.blocks_y),
          .threads = static_cast<unsigned>(kThreads)};
}

Layout LayoutOf(const at::Tensor& x) {
  Layout layout;
  const std::int64_t channels = x.size(1);
  const std::int64_t pack = kPackBytes / x.element_size();
  layout.channels = static_cast<int>(channels);
  layout.rows = x.numel() / channels;
  layout.packed = channels % pack == 0 ? 1 : 0;
  const std::int64_t columns = layout.packed != 0 ? channels / pack : channels;
  const std::int64_t lanes = std::min(
      kLanesMax, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(columns))));
  layout.lanes = static_cast<int>(lanes);
  layout.blocks_y = CeilDiv(columns, lanes);
  return layout;
}

LaunchShape CombineShape(std::int64_t channels) {
  return {.blocks = static_cast<unsigned>(CeilDiv(channels, kCombineChannels)),
          .threads = static_cast<unsigned>(kThreads)};
}

// A thread for each channel.
LaunchShape ChannelsShape(std::int64_t channels) {
  return {.blocks = static_cast<unsigned>(CeilDiv(channels, kThreads)),
          .threads = static_cast<unsigned>(kThreads)};
}

const void* Data(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}
void* MutableData(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr() : nullptr;
}

KernelLauncher& LauncherOf(const at::Tensor& tensor) {
  KernelLauncher* launcher = KernelsFor(tensor.device());
  TORCH_CHECK(launcher != nullptr,
              "batch norm's kernels were turned off between its forward and backward");
  return *launcher;
}

at::Tensor Floats(std::int64_t count, const at::Tensor& like) {
  return at::empty({count}, like.options().dtype(at::kFloat));
}

// As the kernels read it: pixel by pixel, from an address that they can load 16 bytes from.
bool IsReadable(const at::Tensor& tensor) {
  return tensor.dim() == 4 && tensor.is_contiguous(at::MemoryFormat::ChannelsLast) &&
         reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % kPackBytes == 0;
}

struct Forward {
  const at::Tensor& x;
  // Where a pool comes before the norm: its input, and where it is to write x.
  const at::Tensor& pool_input;
  const Pooled& pooled;
  const NormState& state;
  const at::Tensor& batches;
  const SumOverRanks& sum;
};

// Means, inverse deviations and the inverse of the count: 2C + 1 floats. Moves the running ones.
at::Tensor Measure(const Forward& forward, KernelLauncher& launcher, const Layout& layout) {
  const NormState& state = forward.state;
  const int channels = layout.channels;
  const bool pools = forward.pooled.places.defined();
  const LaunchShape all = pools ? PoolLaunch(launcher, forward.pooled, kBlocksOfMoments)
                                : ShapeOf(layout, launcher, kBlocksOfMoments);
  const auto blocks = static_cast<int>(all.blocks);
  const at::Tensor partial =
      Floats(static_cast<std::int64_t>(blocks) * (2 * channels + 1), forward.x);
  if (pools) {
    LaunchPoolMoments(launcher, all, forward.pool_input, forward.pooled, partial);
  } else {
    LaunchKernel(launcher, KernelName("norm_moments", forward.x.scalar_type()), all,
                 Data(forward.x), layout.rows, channels, layout.lanes, layout.packed,
                 MutableData(partial));
  }
  const at::Tensor statistics = Floats(2 * channels + 1, forward.x);
  const auto eps = static_cast<float>(state.eps);
  const auto momentum = static_cast<float>(state.momentum);
  void* running_mean = MutableData(state.running_mean);
  void* running_variance = MutableData(state.running_variance);
  if (!forward.sum) {
    LaunchKernel(launcher, "norm_statistics", CombineShape(channels), Data(partial), blocks,
                 channels, eps, momentum, running_mean, running_variance,
                 MutableData(forward.batches), MutableData(statistics));
    return statistics;
  }
  // In double: the variance is a difference of large numbers where a mean is large.
  at::Tensor sums = at::empty({2 * channels + 1}, forward.x.options().dtype(at::kDouble));
  LaunchKernel(launcher, "norm_rank_sums", CombineShape(channels), Data(partial), blocks, channels,
               MutableData(sums));
  forward.sum(sums);
  LaunchKernel(launcher, "norm_statistics_of_sums", ChannelsShape(channels), Data(sums), channels,
               eps, momentum, running_mean, running_variance, MutableData(forward.batches),
               MutableData(statistics));
  return statistics;
}

at::Tensor Apply(const at::Tensor& x, const at::Tensor& shortcut, NormTail tail,
                 const NormState& state, const at::Tensor& statistics) {
  KernelLauncher& launcher = LauncherOf(x);
  const Layout layout = LayoutOf(x);
  at::Tensor out = at::empty_like(x);
  const char* name = tail == NormTail::kGelu ? "norm_gelu_apply" : "norm_apply";
  LaunchKernel(launcher, KernelName(name, x.scalar_type()),
               ShapeOf(layout, launcher, kBlocksOfOthers), Data(x), Data(shortcut),
               Data(statistics), Data(state.weight), Data(state.bias), layout.rows, layout.channels,
               layout.lanes, layout.packed, static_cast<int>(tail), MutableData(out));
  return out;
}

struct NormFunction : torch::autograd::Function<NormFunction> {
  static Variable forward(AutogradContext* context, const Variable& input,
                          const std::optional<Variable>& shortcut, const Variable& weight,
                          const Variable& bias, const NormState& state, const at::Tensor& batches,
                          NormTail tail, bool pool, const SumOverRanks& sum) {
    KernelLauncher& launcher = LauncherOf(input);
    const Pooled pooled = pool ? EmptyPooled(input) : Pooled{};
    const at::Tensor& x = pool ? pooled.values : input;
    const Layout layout = LayoutOf(x);
    const at::Tensor statistics = Measure({.x = x,
                                           .pool_input = input,
                                           .pooled = pooled,
                                           .state = state,
                                           .batches = batches,
                                           .sum = sum},
                                          launcher, layout);
    const at::Tensor out = Apply(x, shortcut.value_or(at::Tensor()), tail, state, statistics);
    // What passes this ReLU cannot be told from x alone.
    const at::Tensor kept = tail == NormTail::kAddRelu ? out : at::Tensor();
    context->save_for_backward({x, weight, bias, statistics, kept, pooled.places});
    context->saved_data["height"] = input.size(2);
    context->saved_data["width"] = input.size(3);
    context->saved_data["tail"] = static_cast<std::int64_t>(tail);
    if (sum) {
      context->saved_data["sum"] = c10::IValue::make_capsule(c10::make_intrusive<SumHolder>(sum));
    }
    return out;
  }

  static std::vector<Variable> backward(AutogradContext* context, std::vector<Variable> gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor& bias = saved[2];
    const at::Tensor& statistics = saved[3];
    const auto tail = static_cast<NormTail>(context->saved_data["tail"].toInt());
    const at::Tensor gradient = IsReadable(gradients[0])
                                    ? gradients[0]
                                    : gradients[0].clone(at::MemoryFormat::ChannelsLast);
    KernelLauncher& launcher = LauncherOf(x);
    const Layout layout = LayoutOf(x);
    const std::int64_t channels = layout.channels;
    const LaunchShape all = ShapeOf(layout, launcher, kBlocksOfGradientSums);
    const auto blocks = static_cast<int>(all.blocks);

    // The gradient past a tail whose slope is not computed twice.
    const bool keeps = tail == NormTail::kAddRelu || tail == NormTail::kGelu;
    const at::Tensor reaching = keeps ? at::empty_like(x) : at::Tensor();
    const at::Tensor partial = Floats(2 * blocks * channels, x);
    const char* name = tail == NormTail::kGelu ? "norm_gelu_gradient_sums" : "norm_gradient_sums";
    LaunchKernel(launcher, KernelName(name, x.scalar_type()), all, Data(x), Data(gradient),
                 Data(saved[4]), Data(statistics), Data(weight), Data(bias), layout.rows,
                 layout.channels, layout.lanes, layout.packed, static_cast<int>(tail),
                 MutableData(reaching), MutableData(partial));
    const at::Tensor own = Floats(2 * channels, x);
    LaunchKernel(launcher, "norm_gradients", CombineShape(channels), Data(partial), blocks,
                 layout.channels, Data(statistics), MutableData(own));
    at::Tensor sums = own;
    if (const auto found = context->saved_data.find("sum"); found != context->saved_data.end()) {
      sums = own.clone().view({2, channels});
      static_cast<const SumHolder&>(*found->second.toCapsule()).sum(sums);
    }

    at::Tensor x_gradient;
    if (const Pooled pooled{x, saved[5]}; pooled.places.defined()) {
      x_gradient = PoolInputGradient(launcher, PoolLaunch(launcher, pooled, kBlocksOfOthers),
                                     pooled, reaching, statistics, sums, weight,
                                     context->saved_data["height"].toInt(),
                                     context->saved_data["width"].toInt());
    } else {
      x_gradient = at::empty_like(x);
      LaunchKernel(
          launcher, KernelName("norm_input_gradient", x.scalar_type()),
          ShapeOf(layout, launcher, kBlocksOfOthers), Data(x), Data(keeps ? reaching : gradient),
          Data(statistics), Data(sums), Data(weight), Data(bias), layout.rows, layout.channels,
          layout.lanes, layout.packed,
          static_cast<int>(keeps || tail == NormTail::kNone ? NormTail::kNone : NormTail::kRelu),
          MutableData(x_gradient));
    }
    at::Tensor shortcut_gradient;
    if (tail == NormTail::kAddRelu) shortcut_gradient = reaching;
    if (tail == NormTail::kReluAdd) shortcut_gradient = gradients[0];
    return {x_gradient,
            shortcut_gradient,
            weight.requires_grad() ? own.narrow(0, channels, channels) : at::Tensor(),
            bias.requires_grad() ? own.narrow(0, 0, channels) : at::Tensor(),
            {},
            {},
            {},
            {},
            {}};
  }
};

}  // namespace

bool CanNormByKernels(const at::Tensor& x, const at::Tensor& shortcut, const NormState& state) {
  if (KernelsFor(x.device()) == nullptr || !IsKernelType(x.scalar_type())) return false;
  if (!IsReadable(x) || x.numel() == 0) return false;
  if (shortcut.defined() && (!IsReadable(shortcut) || shortcut.sizes() != x.sizes() ||
                             shortcut.scalar_type() != x.scalar_type()))
    return false;
  for (const at::Tensor* kept :
       {&state.weight, &state.bias, &state.running_mean, &state.running_variance}) {
    if (!kept->defined() || kept->scalar_type() != at::kFloat || !kept->is_contiguous() ||
        kept->device() != x.device())
      return false;
  }
  return true;
}

at::Tensor NormByKernels(const at::Tensor& x, const at::Tensor& shortcut, NormTail tail,
                         const NormState& state, const at::Tensor& batches, const SumOverRanks& sum,
                         bool pool) {
  TORCH_INTERNAL_ASSERT(shortcut.defined() == HasShortcut(tail));
  TORCH_INTERNAL_ASSERT(batches.scalar_type() == at::kLong && batches.device() == x.device());
  // Autograd's functions take none that is not defined.
  std::optional<at::Tensor> added;
  if (shortcut.defined()) added = shortcut;
  TORCH_INTERNAL_ASSERT(!pool || tail == NormTail::kGelu);
  return NormFunction::apply(x, added, state.weight, state.bias, state, batches, tail, pool, sum);
}

at::Tensor NormByRunningStatistics(const at::Tensor& x, const at::Tensor& shortcut, NormTail tail,
                                   const NormState& state) {
  TORCH_INTERNAL_ASSERT(shortcut.defined() == HasShortcut(tail));
  const std::int64_t channels = x.size(1);
  const at::Tensor statistics = Floats(2 * channels, x);
  LaunchKernel(LauncherOf(x), "norm_running_statistics", ChannelsShape(channels),
               Data(state.running_mean), Data(state.running_variance), static_cast<int>(channels),
               static_cast<float>(state.eps), MutableData(statistics));
  return Apply(x, shortcut, tail, state, statistics);
}

}  // namespace ddprun
