// SPDX-License-Identifier: Apache-2.0
// Mean loss and accuracy of an epoch's training batches, over all ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/distributed/world.h"

namespace ddprun {

class EpochTally {
 public:
  struct Totals {
    std::int64_t images = 0;  // of all ranks
    std::int64_t correct = 0;
    double loss = 0;  // mean over the images
    double accuracy() const {
      return images == 0 ? 0.0 : static_cast<double>(correct) / static_cast<double>(images);
    }
  };

  // Counts a batch: N x classes scores, N labels and their mean loss, all on one device, always the
  // same. Does not wait for it, and from its second call on may be captured in a CUDA graph: the
  // sums stay where they are.
  void Add(const at::Tensor& scores, const at::Tensor& labels, const at::Tensor& mean_loss);

  // Sums up what all ranks have counted since the last call, and starts again from zero. All ranks
  // must call it.
  Totals Take(World& world);

 private:
  at::Tensor sums_;  // loss, correct ones, images; undefined until a batch has been counted
};

}  // namespace ddprun
