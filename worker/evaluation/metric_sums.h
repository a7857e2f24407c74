// SPDX-License-Identifier: Apache-2.0
// Sums of the loss and of every metric over batches and ranks: of an evaluation, or of an epoch's
// training batches.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>

#include "worker/distributed/world.h"

namespace ddprun {

// The metric that --target-accuracy, the summary and the progress bar use.
inline constexpr char kAccuracy[] = "accuracy";

struct Evaluation {
  std::int64_t images = 0;
  double loss = 0;                          // mean over the images
  std::map<std::string, double> sums = {};  // over the images, by metric

  double Mean(const std::string& metric) const {
    return images == 0 ? 0.0 : sums.at(metric) / static_cast<double>(images);
  }
  double accuracy() const { return Mean(kAccuracy); }
  std::int64_t correct() const { return static_cast<std::int64_t>(sums.at(kAccuracy)); }
};

class MetricSums {
 public:
  // Adds a batch: N x classes scores, N labels and `weight` times `loss`, all on one device, always
  // the same. Does not wait for it, and from its second call on may be captured in a CUDA graph:
  // the sums stay where they are.
  void Add(const at::Tensor& scores, const at::Tensor& labels, const at::Tensor& loss,
           double weight);

  // The sums of all ranks since the last call; then starts again from zero. All ranks must call it.
  Evaluation Take(World& world);

  // What is added from now on can be taken back.
  void Keep();
  void TakeBack();
  // Where the sums are, on `device`, for a copy of one's own.
  const at::Tensor& On(at::Device device);

  // Everything added since the last Take(); undefined if there is nothing.
  at::Tensor Values() const;
  // Values() of before, which count instead of what was added since.
  void SetValues(const at::Tensor& values);

 private:
  at::Tensor sums_;  // images, loss, metrics by name; undefined until a batch has been added
  at::Tensor kept_;
};

}  // namespace ddprun
