// SPDX-License-Identifier: Apache-2.0
// The training loop of libddprun, and what is said of one that is wrong.
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>
#include <limits>

#include "ddprun/ddprun.h"
#include "tests/integration/worker/in_world.h"
#include "tests/integration/worker/small_net.h"

namespace ddprun {
namespace {

std::string FolderOf(World& world, const std::string& name) {
  return world.BroadcastText(testing::TempDir() + "ddprun-" + name + "-" +
                             std::to_string(getpid()));
}

// 15 samples for two ranks: the last batch has 4 of rank 0's and 3 of rank 1's. Each step is that
// of one optimizer that has all samples of the step, and each sample comes once an epoch.
TEST(EpochLoop, EpochsGiveEachSampleItsShare) {
  InWorld(2, [](World& world) {
    auto net = Net(), expected = Net();
    DistributedDataParallel ddp(world, *net);
    torch::optim::SGD optimizer(net->parameters(), 0.1), whole(expected->parameters(), 0.1);
    const at::Tensor inputs = Random({15, 6}, 3);
    const auto loss_of = [&](auto& module, const at::Tensor& rows) {
      return module->forward(inputs.index_select(0, rows)).square().mean();
    };
    Checkpoints saved(world, {.stop_on_signals = false});
    saved.Track("model", *net);
    saved.Track("optimizer", optimizer);
    std::int64_t steps = 0, epochs = 0, short_batches = 0;
    for (auto& epoch : saved.Epochs(Numbers().map(torch::data::transforms::Stack<>()),
                                    {.batch_size = 4, .epochs = 2})) {
      at::Tensor seen = at::zeros({15}, at::kLong);
      for (auto& [batch, at] : epoch) {
        const at::Tensor rows = batch.data.flatten().to(at::kLong);
        ddp.Forward([&, &own = rows] { return loss_of(net, own); }).backward();
        optimizer.step();
        optimizer.zero_grad();
        at::Tensor all = at::zeros({15}, at::kLong);
        all.index_add_(0, rows, at::ones_like(rows));
        world.AllReduceSum(all);
        short_batches += all.sum().item<std::int64_t>() < 8;
        whole.zero_grad();
        loss_of(expected, all.nonzero().flatten()).backward();
        whole.step();
        EXPECT_LT(LargestDifference(*net, *expected), 1e-6);
        seen += all;
        EXPECT_EQ(at.step, ++steps);
        EXPECT_EQ(at.epoch, epochs);
        EXPECT_EQ(at.consumed, seen.sum().item<std::int64_t>());
      }
      EXPECT_TRUE(at::equal(seen, at::ones({15}, at::kLong)));
      ++epochs;
    }
    EXPECT_EQ(epochs, 2);
    EXPECT_EQ(short_batches, 2);
  });
}

// However it is left: at its end, after a number of steps, by break and by return.
TEST(EpochLoop, WhatEpochsHaveTrainedIsSaved) {
  InWorld(2, [](World& world) {
    const std::string folder = FolderOf(world, "epochs");
    const auto train = [&](const EpochOptions& options, std::int64_t break_after) {
      std::int64_t steps = 0;
      Checkpoints saved(world, {.folder = folder, .stop_on_signals = false});
      saved.Track("steps", steps);
      for (auto& epoch : saved.Epochs(16, options)) {
        for (auto& [numbers, at] : epoch) {
          EXPECT_EQ(numbers.size(), 2u);
          EXPECT_EQ(at.step, ++steps);
          if (at.step == break_after) break;
        }
        if (steps == break_after) return steps;
      }
      return steps;
    };
    // Rank 0 alone saves in the destructor.
    const auto trained = [&](const EpochOptions& options, std::int64_t break_after = -1) {
      const std::int64_t steps = train(options, break_after);
      world.Barrier();
      return steps;
    };
    EXPECT_EQ(trained({.batch_size = 2, .steps = 5}), 5);
    EXPECT_EQ(trained({.batch_size = 2, .epochs = 99}, 6), 6);
    EXPECT_EQ(trained({.batch_size = 2, .epochs = 3}), 12);  // the rest of one, and one more
    EXPECT_EQ(trained({.batch_size = 2, .epochs = 3}), 12);  // nothing is left
    EXPECT_EQ(trained({.batch_size = 2, .epochs = 4, .steps = 16}), 16);
    if (world.rank() == 0) std::filesystem::remove_all(folder);
  });
}

TEST(EpochLoop, EpochsThatWouldNotEndAreRefused) {
  InWorld(1, [](World& world) {
    Checkpoints saved(world, {.stop_on_signals = false});
    EXPECT_THROW(saved.Epochs(9, {.batch_size = 2}), std::invalid_argument);
    int epochs = 0;
    const auto train = [&] {
      for (auto& epoch : saved.Epochs(3, {.batch_size = 4, .steps = 9, .drop_last = true})) {
        for (auto& step : epoch) FAIL() << step.at.step;
        ++epochs;
      }
    };
    EXPECT_THROW(train(), std::invalid_argument);
    EXPECT_EQ(epochs, 1);
  });
}

TEST(EpochLoop, AForgottenLossWeightIsNamed) {
  InWorld(2, [](World& world) {
    TrainingPosition at;
    EpochSampler sampler(world, 15, {.batch_size = 4});
    sampler.Advance(at);  // of two full batches
    EXPECT_THROW(sampler.Advance(at), std::logic_error);
    EXPECT_EQ(at.step, 1);
    EXPECT_NE(sampler.LossWeight(), 1);
    sampler.Advance(at);
    EXPECT_EQ(at.consumed, 15);
  });
}

// After the first backward, or where only a part of a step's batches has come.
TEST(EpochLoop, AStepThatEndsBeforeTheOptimizersIsNamed) {
  InWorld(1, [](World& world) {
    auto net = Net();
    torch::optim::Adam optimizer(net->parameters(), 0.01);
    Checkpoints saved(world, {.stop_on_signals = false});
    saved.Track("model", *net);
    saved.Track("optimizer", optimizer);
    net->forward(Random({4, 6}, 1)).mean().backward();
    saved.Resume();
    EXPECT_THROW((void)saved.EndStep({.step = 1}), std::logic_error);
    saved.Resume();
    net->parameters()[0].mutable_grad().fill_(std::numeric_limits<float>::infinity());
    EXPECT_FALSE(saved.EndStep({.step = 1}));  // a step that is left out for that
    saved.Resume();
    optimizer.step();
    EXPECT_FALSE(saved.EndStep({.step = 2}));
  });
}

TEST(EpochLoop, ACheckpointIsAnOptionOfItsOwn) {
  InWorld(1, [](World& world) {
    const std::string folder = FolderOf(world, "resume");
    const auto resumed = [&](Checkpoints::Options options) {
      options.stop_on_signals = false;
      std::int64_t number = 0;
      Checkpoints saved(world, options);
      saved.Track("number", number);
      const std::int64_t step = saved.Resume().step;
      saved.Finish({.step = step + 1});
      return step;
    };
    using From = Checkpoints::ResumeFrom;
    EXPECT_EQ(resumed({.folder = folder}), 0);
    EXPECT_EQ(resumed({.folder = folder, .resume = From::kNewest}), 1);
    EXPECT_EQ(resumed({.folder = folder + "/other", .resume_path = folder}), 2);
    EXPECT_EQ(resumed({.folder = folder, .resume = From::kThisRun}), 0);  // no restart
    EXPECT_EQ(resumed({.folder = folder, .resume = From::kNothing}), 0);
    std::filesystem::remove_all(folder);
  });
}

}  // namespace
}  // namespace ddprun
