// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>

#include "worker/data/dataset.h"
#include "worker/distributed/world.h"
#include "worker/evaluation/metric_sums.h"
#include "worker/evaluation/test_time_augmentation.h"
#include "worker/loss/loss.h"
#include "worker/parallel/parallel_strategy.h"

namespace ddprun {

struct EvaluationOptions {
  std::int64_t batch_size = 1;
  bool channels_last = false;
  std::int64_t threads = 1;  // that make batches
  Loss loss = Losses().Get(Config{}.loss)({.reduction = at::Reduction::Sum});
  TestTimeAugmentation views = TestTimeAugmentation::kPlain;
  // Asked before each batch that all ranks have, so equally often on all; its answer must be the
  // same on all. False breaks the evaluation off. May be empty.
  std::function<bool()> go_on = {};
};

// Over the test images of `set`, each exactly once over all ranks; every rank gets the same answer.
// Nothing if it was broken off. The strategy must be in evaluation mode, and is left in it.
std::optional<Evaluation> Evaluate(World& world, ParallelStrategy& strategy, const Dataset& set,
                                   const EvaluationOptions& options);

}  // namespace ddprun
