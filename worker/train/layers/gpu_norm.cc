// SPDX-License-Identifier: Apache-2.0
#include "worker/train/layers/gpu_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>
#include <vector>

#include "worker/train/kernels/kernels.h"
#include "worker/train/layers/max_pool.h"

namespace ddprun {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;

// As norm_rows.cuh has them.
constexpr std::int64_t kThreads = 256;
constexpr std::int64_t kLanesMax = 32;
constexpr std::int64_t kCombineChannels = 4;
constexpr std::int64_t kPackBytes = 16;
// Blocks of a multiprocessor: multiples of those that its registers have room for at a time (4, 2
// or 3, and 4 or 3), and few where their results must be combined. With 2, 4 and 8, and loops
// unrolled by four, a step of 512 images took 5 % longer on an H100.
constexpr std::int64_t kBlocksOfMoments = 4;
constexpr std::int64_t kBlocksOfGradientSums = 6;
constexpr std::int64_t kBlocksOfOthers = 12;
// Up to so many rows one multiprocessor reads those of eight channels in the time of two launches.
constexpr std::int64_t kRowsOfChannels = 8192;
constexpr std::int64_t kChannelThreads = 512;

// What backward needs beside tensors, in the form that an autograd context can hold.
struct SumHolder : torch::CustomClassHolder {
  explicit SumHolder(SumOverRanks of_sum) : sum(std::move(of_sum)) {}
  const SumOverRanks sum;
};

// Where Fork()'s backward leaves a gradient of what a norm gave for the norm's own backward.
struct GradientHolder : torch::CustomClassHolder {
  at::Tensor gradient;
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

// A block for the channels of 16 bytes, which reads all of their rows.
bool IsByChannels(const Layout& layout, NormTail tail, bool pools, bool sums_over_ranks) {
  return layout.packed != 0 && layout.rows <= kRowsOfChannels && tail != NormTail::kGelu &&
         !pools && !sums_over_ranks;
}

LaunchShape ByChannelsShape(const at::Tensor& x) {
  return {.blocks = static_cast<unsigned>(x.size(1) * x.element_size() / kPackBytes),
          .threads = static_cast<unsigned>(kChannelThreads)};
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

bool IsAligned(const at::Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % kPackBytes == 0;
}

// As the kernels read it: pixel by pixel, from an address that they can load 16 bytes from.
bool IsReadable(const at::Tensor& tensor) {
  return tensor.dim() == 4 && tensor.is_contiguous(at::MemoryFormat::ChannelsLast) &&
         IsAligned(tensor);
}

at::Tensor Readable(const at::Tensor& tensor) {
  return IsReadable(tensor) ? tensor : tensor.clone(at::MemoryFormat::ChannelsLast);
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

struct Normalised {
  at::Tensor out;
  at::Tensor statistics;
};

// Measure() and Apply() by one launch.
Normalised NormaliseByChannels(const Forward& forward, const at::Tensor& shortcut, NormTail tail,
                               KernelLauncher& launcher, const Layout& layout) {
  const NormState& state = forward.state;
  Normalised made{.out = at::empty_like(forward.x),
                  .statistics = Floats(2 * layout.channels + 1, forward.x)};
  LaunchKernel(launcher, KernelName("norm_channels", forward.x.scalar_type()),
               ByChannelsShape(forward.x), Data(forward.x), Data(shortcut), layout.rows,
               layout.channels, static_cast<float>(state.eps), static_cast<float>(state.momentum),
               MutableData(state.running_mean), MutableData(state.running_variance),
               MutableData(forward.batches), Data(state.weight), Data(state.bias),
               static_cast<int>(tail), MutableData(made.out), MutableData(made.statistics));
  return made;
}

struct Backward {
  at::Tensor x;
  at::Tensor weight;
  at::Tensor bias;
  at::Tensor statistics;
  at::Tensor kept;  // what forward gave, where its sign is needed
  Pooled pooled;
  std::int64_t height;  // before the pool
  std::int64_t width;
  NormTail tail;
  at::Tensor gradient;
  at::Tensor more;  // another part of it; undefined: there is none
  SumOverRanks sum;
};

struct NormGradients {
  at::Tensor x;
  at::Tensor reaching;  // past the tail, where its slope is not computed twice
  at::Tensor sums;      // 2C: of bias and weight, of this rank alone
};

bool Keeps(NormTail tail) { return tail == NormTail::kAddRelu || tail == NormTail::kGelu; }

NormGradients GradientsByChannels(const Backward& what, const Layout& layout) {
  const at::Tensor& x = what.x;
  NormGradients made{.x = at::empty_like(x),
                     .reaching = Keeps(what.tail) ? at::empty_like(x) : at::Tensor(),
                     .sums = Floats(2 * layout.channels, x)};
  LaunchKernel(LauncherOf(x), KernelName("norm_channels_gradient", x.scalar_type()),
               ByChannelsShape(x), Data(x), Data(what.gradient), Data(what.more), Data(what.kept),
               Data(what.statistics), Data(what.weight), Data(what.bias), layout.rows,
               layout.channels, static_cast<int>(what.tail), MutableData(made.reaching),
               MutableData(made.sums), MutableData(made.x));
  return made;
}

// The sums of all blocks, and with several ranks those of all of them.
NormGradients GradientsByBlocks(const Backward& what, const Layout& layout) {
  const at::Tensor& x = what.x;
  KernelLauncher& launcher = LauncherOf(x);
  const LaunchShape all = ShapeOf(layout, launcher, kBlocksOfGradientSums);
  const auto blocks = static_cast<int>(all.blocks);
  const std::int64_t channels = layout.channels;
  const bool keeps = Keeps(what.tail);
  NormGradients made{.x = {},
                     .reaching = keeps ? at::empty_like(x) : at::Tensor(),
                     .sums = Floats(2 * channels, x)};
  const at::Tensor partial = Floats(2 * blocks * channels, x);
  const char* name =
      what.tail == NormTail::kGelu ? "norm_gelu_gradient_sums" : "norm_gradient_sums";
  LaunchKernel(launcher, KernelName(name, x.scalar_type()), all, Data(x), Data(what.gradient),
               Data(what.more), Data(what.kept), Data(what.statistics), Data(what.weight),
               Data(what.bias), layout.rows, layout.channels, layout.lanes, layout.packed,
               static_cast<int>(what.tail), MutableData(made.reaching), MutableData(partial));
  LaunchKernel(launcher, "norm_gradients", CombineShape(channels), Data(partial), blocks,
               layout.channels, Data(what.statistics), MutableData(made.sums));
  at::Tensor sums = made.sums;
  if (what.sum) {
    sums = made.sums.clone().view({2, channels});
    what.sum(sums);
  }
  if (what.pooled.places.defined()) {
    made.x = PoolInputGradient(launcher, PoolLaunch(launcher, what.pooled, kBlocksOfOthers),
                               what.pooled, made.reaching, what.statistics, sums, what.weight,
                               what.height, what.width);
    return made;
  }
  made.x = at::empty_like(x);
  LaunchKernel(
      launcher, KernelName("norm_input_gradient", x.scalar_type()),
      ShapeOf(layout, launcher, kBlocksOfOthers), Data(x),
      Data(keeps ? made.reaching : what.gradient), Data(what.statistics), Data(sums),
      Data(what.weight), Data(what.bias), layout.rows, layout.channels, layout.lanes, layout.packed,
      static_cast<int>(keeps || what.tail == NormTail::kNone ? NormTail::kNone : NormTail::kRelu),
      MutableData(made.x));
  return made;
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
    const Forward what{.x = x,
                       .pool_input = input,
                       .pooled = pooled,
                       .state = state,
                       .batches = batches,
                       .sum = sum};
    const at::Tensor added = shortcut.value_or(at::Tensor());
    Normalised made;
    if (IsByChannels(layout, tail, pool, sum != nullptr)) {
      made = NormaliseByChannels(what, added, tail, launcher, layout);
    } else {
      made.statistics = Measure(what, launcher, layout);
      made.out = Apply(x, added, tail, state, made.statistics);
    }
    const auto& [out, statistics] = made;
    // What passes this ReLU cannot be told from x alone.
    const at::Tensor kept = tail == NormTail::kAddRelu ? out : at::Tensor();
    context->save_for_backward({x, weight, bias, statistics, kept, pooled.places});
    context->saved_data["height"] = input.size(2);
    context->saved_data["width"] = input.size(3);
    context->saved_data["tail"] = static_cast<std::int64_t>(tail);
    if (tail == NormTail::kAddRelu)
      context->saved_data["more"] =
          c10::IValue::make_capsule(c10::make_intrusive<GradientHolder>());
    if (sum) {
      context->saved_data["sum"] = c10::IValue::make_capsule(c10::make_intrusive<SumHolder>(sum));
    }
    return out;
  }

  static std::vector<Variable> backward(AutogradContext* context, std::vector<Variable> gradients) {
    const auto saved = context->get_saved_variables();
    const auto tail = static_cast<NormTail>(context->saved_data["tail"].toInt());
    const at::Tensor gradient = Readable(gradients[0]);
    at::Tensor more;  // of Fork()
    if (tail == NormTail::kAddRelu)
      more = std::exchange(
          static_cast<GradientHolder&>(*context->saved_data["more"].toCapsule()).gradient, {});
    if (more.defined()) more = Readable(more);
    SumOverRanks sum;
    if (const auto found = context->saved_data.find("sum"); found != context->saved_data.end())
      sum = static_cast<const SumHolder&>(*found->second.toCapsule()).sum;
    const Backward what{.x = saved[0],
                        .weight = saved[1],
                        .bias = saved[2],
                        .statistics = saved[3],
                        .kept = saved[4],
                        .pooled = {saved[0], saved[5]},
                        .height = context->saved_data["height"].toInt(),
                        .width = context->saved_data["width"].toInt(),
                        .tail = tail,
                        .gradient = gradient,
                        .more = more,
                        .sum = sum};
    const Layout layout = LayoutOf(what.x);
    const std::int64_t channels = layout.channels;
    const NormGradients made =
        IsByChannels(layout, tail, what.pooled.places.defined(), sum != nullptr)
            ? GradientsByChannels(what, layout)
            : GradientsByBlocks(what, layout);
    at::Tensor shortcut_gradient;
    if (tail == NormTail::kAddRelu) shortcut_gradient = made.reaching;
    if (tail == NormTail::kReluAdd) shortcut_gradient = gradients[0];
    return {made.x,
            shortcut_gradient,
            what.weight.requires_grad() ? made.sums.narrow(0, channels, channels) : at::Tensor(),
            what.bias.requires_grad() ? made.sums.narrow(0, 0, channels) : at::Tensor(),
            {},
            {},
            {},
            {},
            {}};
  }
};

struct ForkFunction : torch::autograd::Function<ForkFunction> {
  static torch::autograd::variable_list forward(AutogradContext* context, const Variable& x,
                                                const c10::intrusive_ptr<GradientHolder>& more) {
    context->set_materialize_grads(false);
    context->saved_data["more"] = c10::IValue::make_capsule(more);
    return {x, x};
  }

  static std::vector<Variable> backward(AutogradContext* context, std::vector<Variable> gradients) {
    if (!gradients[0].defined()) return {gradients[1], {}};
    auto& more = static_cast<GradientHolder&>(*context->saved_data["more"].toCapsule());
    more.gradient = gradients[1];
    return {gradients[0], {}};
  }
};

}  // namespace

std::pair<at::Tensor, at::Tensor> Fork(const at::Tensor& x) {
  auto* norm = dynamic_cast<torch::autograd::CppNode<NormFunction>*>(x.grad_fn().get());
  if (norm == nullptr) return {x, x};
  const auto found = norm->ctx_.saved_data.find("more");
  if (found == norm->ctx_.saved_data.end()) return {x, x};
  const auto more = c10::static_intrusive_pointer_cast<GradientHolder>(found->second.toCapsule());
  const auto both = ForkFunction::apply(x, more);
  return {both[0], both[1]};
}

bool CanNormByKernels(const at::Tensor& x, const at::Tensor& shortcut, const NormState& state) {
  if (KernelsFor(x.device()) == nullptr || !IsKernelType(x.scalar_type())) return false;
  if (!IsReadable(x) || x.numel() == 0) return false;
  if (shortcut.defined() && (!IsReadable(shortcut) || shortcut.sizes() != x.sizes() ||
                             shortcut.scalar_type() != x.scalar_type()))
    return false;
  for (const at::Tensor* kept :
       {&state.weight, &state.bias, &state.running_mean, &state.running_variance}) {
    if (!kept->defined() || kept->scalar_type() != at::kFloat || !kept->is_contiguous() ||
        kept->device() != x.device() || !IsAligned(*kept))
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
