// SPDX-License-Identifier: Apache-2.0
// A rank on a GPU leaves a round: its graphs are destroyed, NCCL's communicator is aborted, the
// state comes from a copy, and the next world trains on with the same bits.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ddprun/detail/world_access.h"
#include "ddprun/world.h"
#include "proto/worker_env.h"
#include "tests/gpu/device.h"
#include "tests/testing/small_training.h"
#include "worker/library/accelerator/accelerator.h"
#include "worker/library/base/unique_tensors.h"
#include "worker/train/parallel/precision.h"
#include "worker/train/replicas/recent_states.h"

namespace ddprun {
namespace {

constexpr std::int64_t kSteps = 30;

class KeptOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    DDPRUN_NEEDS_GPUS(1);
    UseDeterministicAlgorithms();
  }

  static std::unique_ptr<World> Join(std::shared_ptr<Interrupt> interrupt) {
    auto world = World::Join(WorkerEnv{},
                             {.backend = BackendChoice::kNccl, .interrupt = std::move(interrupt)});
    LoadAccelerator().UseOwnStream(world->device().index());
    return world;
  }

  static std::vector<at::Tensor> StateOf(const Training& training) {
    std::vector<at::Tensor> tensors = UniqueState(*training.model);
    for (const auto& [name, tensor] : training.optimizer->State()) tensors.push_back(tensor);
    return tensors;
  }

  // The steps from `first` to `last`; those that the device is behind are in `steps`.
  static void Make(Training& training, World& world, GraphSteps& steps, std::int64_t first,
                   std::int64_t last, RecentStates* recent = nullptr) {
    const auto step =
        training.MakeStep(LoadAccelerator().GraphMaker(),
                          RunAheadLimit([] { return LoadAccelerator().MakeMark(); }, steps,
                                        {.who = "rank 0",
                                         .steps_ahead = RunAheadLimit::kStepsAheadIfKept,
                                         .check = [&world] { world.CheckRound(); }}));
    const EpochPlan epoch = training.Epoch();
    step->BeginEpoch(epoch);
    for (std::int64_t number = first; number <= last; ++number) {
      if (recent != nullptr) recent->Keep({.place = {.position = {.step = number - 1}}});
      step->MakeStep({.first = number % 12, .count = 1}, 0.1 / static_cast<double>(number), number);
    }
    if (recent == nullptr) {
      step->recorder().AwaitQueued();
      return;
    }
    world.interrupt()->Trigger();
    EXPECT_THROW(step->recorder().AwaitQueued(), RoundOver);
    EXPECT_THROW(step->MakeStep({.first = 0, .count = 1}, 0.1, last + 1), RoundOver);
  }
};

TEST_F(KeptOnGpu, GoesOnInANewWorld) {
  const Config config = Small({.model = "resnet18", .deterministic = true});
  GraphSteps all;
  const auto world = Join(nullptr);
  Training undisturbed(config, *world);
  Make(undisturbed, *world, all, 1, kSteps);

  const auto broken = Join(std::make_shared<Interrupt>());
  Training training(config, *broken);
  const std::vector<at::Tensor> state = StateOf(training);
  RecentStates recent(state, RunAheadLimit::kStepsAheadIfKept + 1);
  GraphSteps steps;
  {
    const auto closing = broken->interrupt()->Register([&steps] { steps.Close(); });
    Make(training, *broken, steps, 1, kSteps / 2, &recent);
  }
  WorldAccess::AwaitAborted(*broken);
  EXPECT_GE(steps.ended(), kSteps / 2 - 2);
  EXPECT_LE(steps.ended(), kSteps / 2);
  // Also where all were complete: as if the device had not come so far.
  const std::int64_t ended = std::min(steps.ended(), kSteps / 2 - 1);
  for (const at::Tensor& tensor : state) tensor.detach().fill_(77);
  const auto then = recent.GoBackTo(ended);
  ASSERT_TRUE(then.has_value());
  EXPECT_EQ(then->place.position.step, ended);

  const auto next = Join(std::make_shared<Interrupt>());
  Training resumed(config, *next);
  const std::vector<at::Tensor> after = StateOf(resumed);
  for (std::size_t i = 0; i < state.size(); ++i) after[i].detach().copy_(state[i]);
  GraphSteps rest;
  Make(resumed, *next, rest, ended + 1, kSteps);
  const std::vector<at::Tensor> expected = StateOf(undisturbed);
  for (std::size_t i = 0; i < state.size(); ++i)
    EXPECT_TRUE(at::equal(after[i], expected[i])) << "tensor " << i;
  next->Shutdown();
  world->Shutdown();
}

}  // namespace
}  // namespace ddprun
