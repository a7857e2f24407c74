// SPDX-License-Identifier: Apache-2.0
#include "worker/evaluation/evaluate.h"

#include <torch/csrc/autograd/grad_mode.h>

#include "worker/loader/loader.h"
#include "worker/loader/sampler.h"

namespace ddprun {

namespace {

// The views' scores by their weights; undefined where the strategy has none.
at::Tensor ScoresOf(ParallelStrategy& strategy, const at::Tensor& images,
                    TestTimeAugmentation views) {
  at::Tensor sum;
  for (const WeightedView& view : ViewsOf(images, views)) {
    const at::Tensor scores = strategy.Scores(view.images);
    if (!strategy.HasScores()) continue;
    if (view.weight == 1) return scores.to(at::kFloat);
    const at::Tensor share = scores.to(at::kFloat) * view.weight;
    sum = sum.defined() ? sum.add_(share) : share;
  }
  return sum;
}

// How many batches every rank has at least; some have one more.
std::int64_t CommonBatches(std::int64_t images, const Shard& shard, std::int64_t batch_size) {
  return (images / shard.world_size + batch_size - 1) / batch_size;
}

}  // namespace

std::optional<Evaluation> Evaluate(World& world, ParallelStrategy& strategy, const Dataset& set,
                                   const EvaluationOptions& options) {
  const torch::NoGradGuard no_grad;
  Loader loader(*set.test, EvaluationIndices(set.test->size(), strategy.shard()),
                options.batch_size,
                {.channels_last = options.channels_last,
                 .pinned = world.device().is_cuda(),
                 .threads = options.threads});
  // On the device until the end: asking for a number of each batch would make the host wait.
  MetricSums sums;
  std::int64_t batches = 0;
  const std::int64_t common = CommonBatches(set.test->size(), strategy.shard(), options.batch_size);
  while (auto batch = loader.Next()) {
    if (batches++ < common && options.go_on && !options.go_on()) return std::nullopt;
    const at::Tensor labels = batch->labels.to(world.device(), /*non_blocking=*/true);
    const at::Tensor scores =
        ScoresOf(strategy, batch->images.to(world.device(), /*non_blocking=*/true), options.views);
    if (!strategy.HasScores()) continue;
    sums.Add(scores, labels, options.loss(scores, labels), /*weight=*/1);
  }
  return sums.Take(world);
}

}  // namespace ddprun
