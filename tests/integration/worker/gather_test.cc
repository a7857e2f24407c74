// SPDX-License-Identifier: Apache-2.0
// What is measured across ranks, in a world of processes.
#include "worker/train/profile/profiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ddprun/distributed_data_parallel.h"
#include "ddprun/world.h"
#include "rendezvous/client/session_client.h"
#include "tests/integration/worker/ranks.h"

namespace ddprun {
namespace {

void InWorld(int size, const std::function<void(World&)>& body) {
  const ReservedPort reserved;
  RunProcesses(
      size, [&](int rank) { return EnvByHand(rank, size, reserved.port()); },
      [&](const WorkerEnv& env) {
        const auto world = World::Join(
            env, {.backend = BackendChoice::kGloo, .timeout = std::chrono::seconds(20)});
        body(*world);
        world->Shutdown();
      });
}

std::string TextOf(int rank) {
  std::string text;
  for (int i = 0; i < 1000 * rank; ++i) text += std::to_string(i * rank);
  return text;
}

TEST(Gather, BringsTextsOfAnyLengthToRankZero) {
  InWorld(3, [](World& world) {
    const auto all = world.GatherTexts(TextOf(world.rank()));
    if (world.rank() == 0) {
      EXPECT_THAT(all, testing::ElementsAre("", TextOf(1), TextOf(2)));
    } else {
      EXPECT_THAT(all, testing::IsEmpty());
    }
  });
}

TEST(Gather, BringsAllRanksTimesToAll) {
  InWorld(2, [](World& world) {
    SectionTimes own;
    own.steps = 10 + world.rank();
    own[StepSection::kCheckpoint] = std::chrono::nanoseconds(1) + std::chrono::hours(world.rank());
    const auto all = GatherTimes(world, own);
    ASSERT_EQ(all.size(), 2);
    EXPECT_EQ(all[1].steps, 11);
    EXPECT_EQ(all[0][StepSection::kCheckpoint], std::chrono::nanoseconds(1));
    EXPECT_EQ(all[1][StepSection::kCheckpoint],
              std::chrono::hours(1) + std::chrono::nanoseconds(1));
  });
}

// Rank 1 begins its backward only when rank 0 has said that its own gradients are computed: said
// after the wait for rank 1, that would never come.
TEST(GradientsComputed, IsSaidBeforeTheWaitForOtherRanks) {
  InWorld(2, [](World& world) {
    torch::nn::Linear model(4, 2);
    DistributedDataParallel ddp(world, *model, {});
    for (int step = 0; step < 3; ++step) {
      const std::string key = "computed/" + std::to_string(step);
      ddp.ZeroGrad();
      const at::Tensor loss = ddp.Forward([&] { return model->forward(at::ones({3, 4})); }).sum();
      if (world.rank() == 1) world.store()->wait({key});
      int said = 0;
      OnGradientsComputed(loss, [&] {
        ++said;
        EXPECT_TRUE(model->weight.grad().defined());
        if (world.rank() == 0) world.store()->set(key, std::vector<std::uint8_t>{1});
      });
      loss.backward();
      EXPECT_EQ(said, 1);
    }
  });
}

}  // namespace
}  // namespace ddprun
