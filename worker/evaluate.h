// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "worker/dataset.h"
#include "worker/models.h"
#include "worker/world.h"

namespace ddprun {

struct Evaluation {
  std::int64_t images = 0;
  std::int64_t correct = 0;
  double loss = 0;  // mean over all images

  double accuracy() const {
    return images == 0 ? 0.0 : static_cast<double>(correct) / static_cast<double>(images);
  }
};

struct EvaluationOptions {
  std::int64_t batch_size = 1;
  bool channels_last = false;
};

// Over the test images of `set`, each exactly once over all ranks; every rank gets the same answer.
// Rank 0's buffers (batch norm's running statistics) become every rank's first, as each has the
// statistics of its own last batch. Leaves the model in evaluation mode.
Evaluation Evaluate(World& world, ImageModel& model, const Dataset& set, EvaluationOptions options);

// Makes rank 0's buffers every rank's. All ranks must call it.
void BroadcastBuffers(World& world, const torch::nn::Module& module);

}  // namespace ddprun
