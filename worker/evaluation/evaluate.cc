// SPDX-License-Identifier: Apache-2.0
#include "worker/evaluation/evaluate.h"

#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "worker/evaluation/test_time_augmentation.h"
#include "worker/loader/loader.h"
#include "worker/loader/sampler.h"
#include "worker/loss/loss.h"

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

std::optional<Evaluation> Evaluate(const Config& config, World& world, ParallelStrategy& strategy,
                                   const Dataset& set, const std::function<bool()>& go_on) {
  const torch::NoGradGuard no_grad;
  const Loss loss = Losses().Get(config.loss)({.reduction = at::Reduction::Sum});
  Loader loader(*set.test, EvaluationIndices(set.test->size(), strategy.shard()),
                config.eval_batch_size,
                {.channels_last = config.channels_last,
                 .pinned = world.device().is_cuda(),
                 .threads = config.loader_threads});
  // On the device until the end: reading a number of each batch would make the host wait.
  MetricSums sums;
  std::int64_t batches = 0;
  const std::int64_t common =
      CommonBatches(set.test->size(), strategy.shard(), config.eval_batch_size);
  while (auto batch = loader.Next()) {
    if (batches++ < common && !go_on()) return std::nullopt;
    const at::Tensor labels = batch->labels.to(world.device(), /*non_blocking=*/true);
    const at::Tensor scores =
        ScoresOf(strategy, batch->images.to(world.device(), /*non_blocking=*/true), config.tta);
    if (!strategy.HasScores()) continue;
    sums.Add(scores, labels, loss(scores, labels), /*weight=*/1);
  }
  return sums.Take(world);
}

void WarmUpEvaluation(const Config& config, World& world, ParallelStrategy& strategy,
                      const Dataset& set) {
  const torch::NoGradGuard no_grad;
  const auto own =
      static_cast<std::int64_t>(EvaluationIndices(set.test->size(), strategy.shard()).size());
  const SampleShape shape = set.shape();
  const auto forward = [&](std::int64_t images) {
    if (images == 0) return;
    const at::Tensor dummy =
        at::zeros({images, shape.channels, shape.height, shape.width}, world.device())
            .contiguous(config.channels_last ? at::MemoryFormat::ChannelsLast
                                             : at::MemoryFormat::Contiguous);
    ScoresOf(strategy, dummy, config.tta);
  };
  if (own >= config.eval_batch_size) forward(config.eval_batch_size);
  forward(own % config.eval_batch_size);
}

}  // namespace ddprun
