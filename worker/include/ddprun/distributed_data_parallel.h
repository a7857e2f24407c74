// SPDX-License-Identifier: Apache-2.0
// Data parallelism: the same parameters on every rank, gradients averaged over all ranks while
// backward still runs. c10d::Reducer does the work, as it does in Python's
// torch.nn.parallel.DistributedDataParallel, whose steps and defaults are kept
// (torch/nn/parallel/distributed.py): buckets of 25 MiB in reverse order of the parameters with a
// first one of 1 MiB, rebuilt once in the order in which gradients came; gradients are views into
// the buckets; buffers (batch norm's running statistics) are rank 0's before every forward in
// training. Where all ranks share a machine, the buckets are smaller, lie in memory that all have
// mapped and are averaged there instead of being sent. A world of one has no buckets.
#pragma once

#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "ddprun/detail/choices.h"
#include "ddprun/detail/shm_notes.h"
#include "ddprun/world.h"

namespace c10d {
class Reducer;
}

namespace ddprun {

class GradientMeter;
class ShmAllreduce;

// Which parameters each of the reducer's buckets holds, by their place among those that need
// gradients. Gloo's sums depend on it in their last bits.
using BucketLayout = std::vector<std::vector<std::size_t>>;

// How much of the averaging of gradients is hidden behind backward.
struct GradientTraffic {
  double averaging_seconds = 0;  // while at least one bucket was on its way
  double waited_seconds = 0;     // of these, after this rank's last gradient was there
  std::int64_t bytes = 0;        // that this rank gave to be averaged, as they travelled

  double hidden_share() const {
    return averaging_seconds > 0 ? 1 - waited_seconds / averaging_seconds : 0;
  }
};

// Calls `computed` in each backward that goes through `loss`, when all gradients are there and
// before the reducer waits for the other ranks. On a GPU it may be called on the device's thread
// while backward's caller waits.
void OnGradientsComputed(const at::Tensor& loss, std::function<void()> computed);

// Makes rank 0's buffers every rank's. All ranks must call it.
void BroadcastBuffers(World& world, const torch::nn::Module& module);

// One thread at a time. The module's parameters, and their gradients, must not be replaced.
class DistributedDataParallel {
 public:
  struct Options {
    std::int64_t bucket_bytes = 25 << 20;
    // In shared memory a bucket costs next to nothing, a small one is averaged while it is in the
    // cache, and the last one, which backward cannot hide, is small too.
    std::int64_t shared_bucket_bytes = 4 << 20;
    std::int64_t first_bucket_bytes = 1 << 20;
    // Before each training forward. What reads them between trainings (evaluation, checkpoints)
    // takes rank 0's: BroadcastBuffers().
    bool broadcast_buffers = true;
    // 16 bits are for networks: they go by the process group even where the ranks share a machine.
    GradientFormat format = GradientFormat::kFull;
    bool shared_memory = true;  // where it can be had
    // Some parameters have no part in some losses, on one rank or on all (Python's option of that
    // name). Each forward searches the graph of its outputs then.
    bool find_unused_parameters = false;
    // Gradients share the buckets' memory: nothing is copied. False: a copy for each.
    bool gradient_views = true;
    // All ranks' modules have the same shapes, and get the same values otherwise.
    bool alike = false;
    BucketLayout layout = {};    // to begin with; empty: one bucket
    std::size_t note_bytes = 0;  // see notes()
  };

  // Makes all ranks' parameters and buffers those of rank 0, after checking that all have the same
  // shapes. The module's parameters must be on the world's device and in their final memory format.
  // Throws c10::Error if the ranks' models differ.
  DistributedDataParallel(World& world, torch::nn::Module& module, Options options);
  DistributedDataParallel(World& world, torch::nn::Module& module)
      : DistributedDataParallel(world, module, Options()) {}
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  // Runs `forward` (which gives the outputs that the loss depends on: a tensor, or a vector, pair
  // or tuple of tensors) as DDP must: buffers synchronised before, reducer told of the outputs
  // after. In eval mode, or with gradients off, it just runs it. Throws what `forward` throws,
  // PeerError and RoundOver.
  template <typename Function>
  auto Forward(Function&& forward) {
    const bool reduces = no_sync_ == 0 && BeginForward();
    auto outputs = std::forward<Function>(forward)();
    if (reduces) EndForward(TensorsOf(outputs));
    return outputs;
  }

  // Python's no_sync(): while the scope lives, forward and backward passes only add to this rank's
  // gradients; the next backward after it averages the sums.
  //
  //   {
  //     const auto no_sync = ddp.NoSync();
  //     ... forward and backward of all batches of the step but the last
  //   }
  class [[nodiscard]] NoSyncScope {
   public:
    explicit NoSyncScope(DistributedDataParallel& ddp) : ddp_(ddp) { ++ddp_.no_sync_; }
    ~NoSyncScope() { --ddp_.no_sync_; }
    NoSyncScope(const NoSyncScope&) = delete;
    NoSyncScope& operator=(const NoSyncScope&) = delete;

   private:
    DistributedDataParallel& ddp_;
  };
  NoSyncScope NoSync() { return NoSyncScope(*this); }

  template <typename Function>
  [[deprecated("use NoSync()")]] auto Forward(Function&& forward, bool synchronize) {
    std::optional<NoSyncScope> no_sync;
    if (!synchronize) no_sync.emplace(*this);
    return Forward(std::forward<Function>(forward));
  }

  // After a backward that synchronized. The first one has shown the order in which gradients come:
  // buckets are rebuilt now, so that what a step needs of its ranks is done when it ends. Without
  // this call the next Forward() does it.
  void EndBackward();
  // The layout in all steps but the first one.
  BucketLayout Layout() const;
  // Before the first step, which begins with this layout then. One that the steps after it would
  // not have (of other parameters or limits) changes nothing. All ranks must give the same.
  void UseLayout(const BucketLayout& layout);

  // Drops the gradients of all of the module's parameters, as Optimizer::zero_grad() does of its
  // own.
  void ZeroGrad();

  // Since the beginning. Nothing in a world of one, nor with NCCL's own all-reduce: there a trace
  // tells.
  GradientTraffic traffic() const;

  bool uses_shared_memory() const { return shm_allreduce_ != nullptr; }
  // Notes of `note_bytes`, where gradients are averaged in shared memory; else null.
  ShmNotes* notes() { return notes_.get(); }

 private:
  using Tensors = std::vector<at::Tensor>;

  static Tensors TensorsOf(const at::Tensor& output) { return {output}; }
  static Tensors TensorsOf(const Tensors& outputs) { return outputs; }
  template <typename... Outputs>
  static Tensors TensorsOf(const std::tuple<Outputs...>& outputs) {
    return std::apply([](const auto&... each) { return Concatenated({TensorsOf(each)...}); },
                      outputs);
  }
  template <typename First, typename Second>
  static Tensors TensorsOf(const std::pair<First, Second>& outputs) {
    return Concatenated({TensorsOf(outputs.first), TensorsOf(outputs.second)});
  }
  static Tensors Concatenated(std::initializer_list<Tensors> lists) {
    Tensors all;
    for (const Tensors& list : lists) all.insert(all.end(), list.begin(), list.end());
    return all;
  }

  // Whether the backward that follows averages gradients.
  bool BeginForward();
  void EndForward(const Tensors& outputs);
  // Size limits of the first bucket and of the others, in bytes.
  std::vector<std::size_t> BucketLimits() const;
  void UseSharedMemory();
  void MakeReducer();
  void RebuildBuckets();
  void SynchronizeBuffers();

  World& world_;
  torch::nn::Module& module_;
  const Options options_;
  std::vector<at::Tensor> parameters_;  // those that need gradients, in the module's order
  const std::shared_ptr<GradientMeter> meter_;
  std::shared_ptr<ShmAllreduce> shm_allreduce_;
  std::unique_ptr<ShmNotes> notes_;
  BucketLayout layout_;                     // to begin with
  std::unique_ptr<c10d::Reducer> reducer_;  // null in a world of one
  bool buckets_rebuilt_ = false;
  int no_sync_ = 0;  // scopes
};

}  // namespace ddprun
