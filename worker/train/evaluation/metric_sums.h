// SPDX-License-Identifier: Apache-2.0
// Sums of the loss and of every metric over batches and ranks: of an evaluation, or of an epoch's
// training batches. Those of an epoch can be replicated: each step adds up what all ranks have
// added in it, so that a rank which ends takes nothing with it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "ddprun/detail/shm_notes.h"
#include "ddprun/world.h"
#include "worker/train/evaluation/class_counts.h"

namespace ddprun {

// The metric that --target-accuracy, the summary and the progress bar use.
inline constexpr char kAccuracyMetric[] = "accuracy";

struct Evaluation {
  std::int64_t images = 0;
  double loss = 0;                          // mean over the images
  std::map<std::string, double> sums = {};  // over the images, by metric
  ClassCounts by_class = {};                // if they were counted

  double Mean(const std::string& metric) const {
    return images == 0 ? 0.0 : sums.at(metric) / static_cast<double>(images);
  }
  double accuracy() const { return Mean(kAccuracyMetric); }
  std::int64_t correct() const { return static_cast<std::int64_t>(sums.at(kAccuracyMetric)); }
};

class MetricSums {
 public:
  // `classes` of an evaluation: what the images of each are taken for is counted as well.
  explicit MetricSums(std::int64_t classes = 0) : classes_(classes) {}

  // Adds a batch: N x classes scores, N labels and `weight` times `loss`, all on one device, always
  // the same. Does not wait for it, and from its second call on may be captured in a CUDA graph:
  // the sums stay where they are.
  void Add(const at::Tensor& scores, const at::Tensor& labels, const at::Tensor& loss,
           double weight);

  // The sums of all ranks since the last call; then starts again from zero. All ranks must call it.
  // Communicates unless the sums are replicated.
  Evaluation Take(World& world);

  // From now on every rank has the sums of all ranks; they lie on `device`.
  void Replicate(at::Device device);
  bool replicated() const { return all_.defined(); }
  // In a step, after its last batch: begins to add up what the ranks have added in it. All ranks
  // must call it. `notes`, if there are any, have room for NoteBytes() at their begin.
  void Send(World& world, ShmNotes* notes);
  // Before the step changes anything else: what it adds counts. Throws if that has not come. On a
  // GPU the device waits. Without Send() does nothing.
  void Await(const World& world, const ShmNotes* notes);
  static std::size_t NoteBytes();
  // What was added in a step that does not count is dropped.
  void Discard();
  // Where replicated sums lie: this rank's of a step, and those of all ranks.
  const at::Tensor& of_step() const { return sums_; }
  const at::Tensor& of_all_ranks() const { return all_; }

  // Everything added since the last Take(), if replicated that of all ranks; undefined if there is
  // nothing.
  at::Tensor Values() const;
  // Values() of before, which count instead of what was added since.
  void SetValues(const at::Tensor& values);

 private:
  at::Tensor Zeros(at::Device device) const;

  const std::int64_t classes_;
  // Images, loss, metrics by name; then CountsPerClass() of each class.
  at::Tensor sums_;  // added by this rank; undefined until a batch has been added
  at::Tensor all_;   // by all ranks in steps that count; undefined if not replicated
  at::Tensor coming_;
  c10::intrusive_ptr<c10d::Work> work_;
};

}  // namespace ddprun
