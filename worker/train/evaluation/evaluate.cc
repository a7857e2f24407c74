// SPDX-License-Identifier: Apache-2.0
#include "worker/train/evaluation/evaluate.h"

#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "worker/library/math/sampler.h"
#include "worker/train/evaluation/test_time_augmentation.h"
#include "worker/train/layers/loss.h"

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
                                   TestFeed& feed, std::int64_t classes,
                                   const std::function<bool()>& go_on) {
  const torch::NoGradGuard no_grad;
  const Loss loss = Losses().Get(config.loss)({.reduction = at::Reduction::Sum});
  feed.Begin();
  // On the device until the end: reading a number of each batch would make the host wait.
  MetricSums sums(classes);
  std::int64_t batches = 0;
  const std::int64_t common = CommonBatches(feed.size(), strategy.shard(), config.eval_batch_size);
  while (const auto batch = feed.Next()) {
    if (batches++ < common && !go_on()) return std::nullopt;
    if (batch->labels.size(0) == 0) continue;
    const at::Tensor scores = ScoresOf(strategy, batch->images, config.tta);
    if (!strategy.HasScores()) continue;
    sums.Add(scores, batch->labels, loss(scores, batch->labels), /*weight=*/1);
  }
  return sums.Take(world);
}

std::string LeftOut(const Evaluation& evaluation, const TestFeed& feed) {
  const std::int64_t count = feed.size() - evaluation.images;
  if (count <= 0) return "";
  return std::to_string(count) + " of " + std::to_string(feed.size()) +
         (count == 1 ? " test images is damaged and left" : " test images are damaged and left") +
         " out of the accuracy";
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
        at::zeros({images, shape.channels, shape.height, shape.width},
                  at::TensorOptions(world.device()).dtype(strategy.image_type()))
            .contiguous(config.channels_last ? at::MemoryFormat::ChannelsLast
                                             : at::MemoryFormat::Contiguous);
    ScoresOf(strategy, dummy, config.tta);
  };
  if (own >= config.eval_batch_size) forward(config.eval_batch_size);
  forward(own % config.eval_batch_size);
}

}  // namespace ddprun
