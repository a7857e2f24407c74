// SPDX-License-Identifier: Apache-2.0
// How the model is distributed over the ranks: the interface of data and pipeline parallelism,
// which run forward and backward of a step.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <vector>

#include "ddprun/distributed_data_parallel.h"
#include "worker/library/files/state_dict.h"
#include "worker/library/math/sampler.h"
#include "worker/train/config/config.h"
#include "worker/train/layers/loss.h"
#include "worker/train/parallel/step_events.h"

namespace ddprun {

struct StepOptions {
  Loss loss = Losses().Get(Config{}.loss)({});  // mean over a batch
  std::optional<at::ScalarType> autocast;
  StepEvents& events = NoStepEvents();
  // How gradients are averaged; `alike`, `layout` and `note_bytes` of data parallelism only.
  DistributedDataParallel::Options average = {};
  // Called with the scores, labels and mean loss of each batch that counts, on the rank (and in the
  // thread) that has the model's last stage. Must not wait for the device.
  std::function<void(const at::Tensor& scores, const at::Tensor& labels, const at::Tensor& loss)>
      on_scores = [](const at::Tensor&, const at::Tensor&, const at::Tensor&) {};
};

// All methods that communicate must be called by all ranks in the same order.
class ParallelStrategy {
 public:
  struct Batch {
    at::Tensor images;  // N x C x height x width, on the rank's device; float or image_type()
    at::Tensor labels;  // int64, N, there too
    // What the mean loss of these samples is multiplied with, so that the mean of that over the
    // data-parallel ranks, summed over a step's batches, is the mean over all of its samples.
    double weight = 1;
    // A scalar on the device that the loss is multiplied with as well; undefined for none.
    at::Tensor scale = {};
  };

  virtual ~ParallelStrategy() = default;

  // Which samples this rank takes: ranks that share a model take the same.
  virtual Shard shard() const = 0;

  // The type in which images are best made: that of the model's first operation. The numbers are
  // the same in float.
  virtual at::ScalarType image_type() const { return at::kFloat; }

  // Parameters that this rank updates (each once) under the names of the whole model's state dict.
  virtual NamedTensors Parameters() const = 0;
  // Parameters and buffers that this rank holds. Ranks that are a multiple of size() /
  // shard().world_size apart hold the same.
  virtual std::vector<at::Tensor> State() const = 0;

  // Forward and backward of one of a step's batches; a pipeline's micro-batches take turns. After
  // the one with `last` the gradients in Parameters() are the sum of all, averaged over the
  // data-parallel ranks. Returns the mean loss of these samples: a detached scalar, without weight
  // and scale. Throws c10::Error if another rank has ended.
  virtual at::Tensor ForwardBackward(const Batch& batch, bool first, bool last) = 0;

  // Sums a scalar on the device, in place, over the ranks that hold other parameters of the same
  // model; nothing where this rank holds them all.
  virtual void SumOverModel(at::Tensor /*value*/) {}

  // How the steps to come sum gradients over ranks: StepOptions::average of another strategy. Empty
  // before the first step, and where nothing depends on it.
  virtual BucketLayout Layout() const { return {}; }
  // Before the first step: makes it as steps with this Layout() were made, if this training's are.
  // All ranks must give the same.
  virtual void UseLayout(const BucketLayout& /*layout*/) {}

  // Bytes that the ranks give each other in each step; null where they share no memory.
  virtual ShmNotes* notes() { return nullptr; }

  // What was averaged since the beginning, and how long that took.
  virtual GradientTraffic traffic() const { return {}; }

  // Between training and evaluation; evaluation takes batch norm's statistics from rank 0.
  virtual void Train() = 0;
  virtual void Evaluate() = 0;
  // N x classes, on a rank whose shard() counts it; undefined on the others. Without gradients.
  virtual at::Tensor Scores(const at::Tensor& images) = 0;
  // Whether Scores() gives them here.
  virtual bool HasScores() const { return true; }

  // For a checkpoint: on rank 0 its own tensors and those of the ranks that hold the rest of its
  // model; `own` itself where that is all there is. Not defined on other ranks. Throws
  // c10::OutOfMemoryError on all ranks of the model if a device has no memory for it.
  virtual NamedTensors Gather(const NamedTensors& own) { return own; }
  // For a model file: makes the model on rank 0 whole, with the parameters and buffers of all ranks
  // that share it.
  virtual void GatherModel() {}
};

}  // namespace ddprun
