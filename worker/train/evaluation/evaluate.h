// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "ddprun/world.h"
#include "worker/train/config/config.h"
#include "worker/train/evaluation/metric_sums.h"
#include "worker/train/evaluation/test_feed.h"
#include "worker/train/parallel/parallel_strategy.h"

namespace ddprun {

// Over the test images of `feed`, which are of `classes` classes, each exactly once over all ranks;
// every rank gets the same answer. The strategy must be in evaluation mode, and is left in it.
// `go_on` is asked before each batch that all ranks have, so equally often on all; its answer must
// be the same on all. Nothing if it was false.
std::optional<Evaluation> Evaluate(
    const Config& config, World& world, ParallelStrategy& strategy, TestFeed& feed,
    std::int64_t classes, const std::function<bool()>& go_on = [] { return true; });

// How many test images are damaged, and so not in the evaluation; empty where none is. A line.
std::string LeftOut(const Evaluation& evaluation, const TestFeed& feed);

// Forwards of images without content, of all shapes that Evaluate() takes. All ranks must call it.
void WarmUpEvaluation(const Config& config, World& world, ParallelStrategy& strategy,
                      const Dataset& set);

}  // namespace ddprun
