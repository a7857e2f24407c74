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

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "worker/ddp/bucket_layout.h"
#include "worker/ddp/gradient_compression.h"
#include "worker/ddp/gradient_meter.h"
#include "worker/distributed/world.h"

namespace c10d {
class Reducer;
}

namespace ddprun {

class ShmAllreduce;
class ShmNotes;

// Calls `computed` in each backward that goes through `loss`, when all gradients are there and
// before the reducer waits for the other ranks. On a GPU it may be called on the device's thread
// while backward's caller waits.
void OnGradientsComputed(const at::Tensor& loss, std::function<void()> computed);

// Makes rank 0's buffers every rank's. All ranks must call it.
void BroadcastBuffers(World& world, const torch::nn::Module& module);

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
    // All ranks' modules have the same shapes, and get the same values otherwise.
    bool alike = false;
    BucketLayout layout = {};    // to begin with; empty: one bucket
    std::size_t note_bytes = 0;  // see notes()
  };

  // Makes all ranks' parameters and buffers those of rank 0, after checking that all have the same
  // shapes. The module's parameters must be on the world's device and in their final memory format.
  // Throws c10::Error if the ranks' models differ.
  DistributedDataParallel(World& world, torch::nn::Module& module, Options options);
  ~DistributedDataParallel();

  // Runs `forward` (which gives the outputs that the loss depends on) as DDP must: buffers
  // synchronised before, reducer told of the outputs after. In eval mode, or with gradients off, it
  // just runs it. Without `synchronize` (Python's no_sync()) backward only adds to this rank's
  // gradients, and the next one with it averages the sums.
  at::Tensor Forward(const std::function<at::Tensor()>& forward, bool synchronize = true);

  // After a backward that synchronized. The first one has shown the order in which gradients come:
  // buckets are rebuilt now, so that what a step needs of its ranks is done when it ends.
  void EndBackward();
  // Of all steps but the first one.
  BucketLayout Layout() const;
  // Before the first step, which begins with this layout then. One that the steps after it would
  // not have (of other parameters or limits) changes nothing. All ranks must give the same.
  void UseLayout(const BucketLayout& layout);

  // Sets gradients to zero without letting go of the buckets' memory, as Optimizer::zero_grad()
  // would.
  void ZeroGrad();

  // Since the beginning. Nothing in a world of one, nor with NCCL's own all-reduce: there a trace
  // tells.
  GradientTraffic traffic() const { return meter_->Read(); }

  bool uses_shared_memory() const { return shm_allreduce_ != nullptr; }
  // Of `note_bytes`, where gradients are averaged in shared memory; else null.
  ShmNotes* notes() { return notes_.get(); }

 private:
  // Of the first bucket and of the others, in bytes.
  std::vector<std::size_t> BucketLimits() const;
  void UseSharedMemory();
  void MakeReducer();
  void RebuildBuckets();
  void SynchronizeBuffers();

  World& world_;
  torch::nn::Module& module_;
  const Options options_;
  std::vector<at::Tensor> parameters_;  // those that need gradients, in the module's order
  const std::shared_ptr<GradientMeter> meter_ = std::make_shared<GradientMeter>();
  std::shared_ptr<ShmAllreduce> shm_allreduce_;
  std::unique_ptr<ShmNotes> notes_;
  BucketLayout layout_;                     // to begin with
  std::unique_ptr<c10d::Reducer> reducer_;  // null in a world of one
  bool buckets_rebuilt_ = false;
};

}  // namespace ddprun
