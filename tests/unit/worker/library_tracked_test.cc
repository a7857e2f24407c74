// SPDX-License-Identifier: Apache-2.0
// What a rank keeps for the next round is the state of one step, also when the round ends after an
// optimizer has made the next one.
#include "worker/library/core/tracked.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>

namespace ddprun {
namespace {

using MakeOptimizer =
    std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;

template <typename Optimizer, typename Options>
MakeOptimizer Maker(const Options& options) {
  return [options](std::vector<at::Tensor> parameters) {
    return std::make_unique<Optimizer>(std::move(parameters), options);
  };
}

class TrackedOptimizer : public testing::TestWithParam<MakeOptimizer> {
 protected:
  TrackedOptimizer() {
    tracked_.Add(ThingOf("net", *net_));
    tracked_.Add(ThingOf("optimizer", *optimizer_));
  }

  void Step() {
    optimizer_->zero_grad();
    net_->forward(at::ones({1, 3})).sum().backward();
    optimizer_->step();
  }
  // Of the net, as it is now.
  at::Tensor Weight() const { return net_->weight.detach().clone(); }
  // Whether all that is kept is of the step in which the net had these weights.
  void ExpectKeptIs(const at::Tensor& weight) {
    const NamedTensors kept = tracked_.Marked();
    if (kept.empty()) return;
    EXPECT_EQ(kept[0].first, "net/weight");
    EXPECT_TRUE(at::equal(kept[0].second, weight));
  }

  torch::nn::Linear net_{3, 2};
  std::unique_ptr<torch::optim::Optimizer> optimizer_ = GetParam()(net_->parameters());
  Tracked tracked_;
};

TEST_P(TrackedOptimizer, AStepThatWasNotMarkedIsNotKept) {
  for (int step = 0; step < 3; ++step) {
    const at::Tensor weight = Weight();
    tracked_.Mark();
    EXPECT_FALSE(tracked_.Marked().empty());
    Step();
    EXPECT_FALSE(at::equal(Weight(), weight));
    ExpectKeptIs(weight);
  }
}

// Each step, or none at all, where they cannot be seen.
TEST_P(TrackedOptimizer, ItsVersionsCountSteps) {
  const auto before = tracked_.OptimizerVersions();
  Step();
  const auto first = tracked_.OptimizerVersions();
  Step();
  const auto second = tracked_.OptimizerVersions();
  if (!before) return;
  EXPECT_NE(*before, *first);
  EXPECT_NE(*first, *second);
}

INSTANTIATE_TEST_SUITE_P(
    OfEachKind, TrackedOptimizer,
    testing::Values(Maker<torch::optim::SGD>(torch::optim::SGDOptions(0.1)),
                    Maker<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9)),
                    Maker<torch::optim::Adam>(torch::optim::AdamOptions(0.1)),
                    Maker<torch::optim::AdamW>(torch::optim::AdamWOptions(0.1)),
                    Maker<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.1)),
                    Maker<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.1))));

TEST(Tracked, StepsOfStatelessOptimizersAreNotSeen) {
  torch::nn::Linear net(3, 2);
  torch::optim::SGD plain(net->parameters(), 0.1);
  torch::optim::Adam adam(net->parameters(), 0.1);
  Tracked tracked;
  EXPECT_EQ(tracked.OptimizerVersions(), std::nullopt);
  tracked.Add(ThingOf("adam", adam));
  EXPECT_NE(tracked.OptimizerVersions(), std::nullopt);
  tracked.Add(ThingOf("plain", plain));
  EXPECT_EQ(tracked.OptimizerVersions(), std::nullopt);
}

}  // namespace
}  // namespace ddprun
