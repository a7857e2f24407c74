// SPDX-License-Identifier: Apache-2.0
// A step that is replayed gives the numbers of one that is queued: with every setting, over the
// ends of epochs, over ranks, with images on the device and with a loader's batches. The device is
// the CPU here; tests/gpu has the same with CUDA graphs.
#include "worker/step/train_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/integration/worker/ranks.h"
#include "tests/integration/worker/service.h"
#include "tests/testing/trained_steps.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTimeout{60'000};

// Does again what was captured.
class Repetition : public StepGraph {
 public:
  void Capture(const std::function<void()>& work) override {
    ASSERT_FALSE(work_) << "captured twice";
    work_ = work;
  }
  void Replay() override {
    ++replays_;
    work_();
  }
  static inline int replays_ = 0;

 private:
  std::function<void()> work_;
};

Trained Train(How how, const Config& config, World& world, bool resident,
              std::int64_t consumed = 0) {
  return TrainBy(
      how, config, world, resident, [] { return std::make_unique<Repetition>(); }, consumed);
}

class TrainSteps : public testing::TestWithParam<std::tuple<Recipe, bool>> {};

TEST_P(TrainSteps, AreTheSameQueuedAndReplayed) {
  const auto& [recipe, resident] = GetParam();
  const Config config = SmallTraining(recipe.config);
  const auto world = World::Join(WorkerEnv{}, {.backend = BackendChoice::kGloo});
  const Trained queued = Train(How::kQueued, config, *world, resident);
  ExpectAlike(Train(How::kQueued, config, *world, !resident), queued);
  Repetition::replays_ = 0;
  ExpectAlike(Train(How::kReplayed, config, *world, resident), queued);
  // All but the first ones, the last of each epoch, and the one after forward has changed.
  const int steps = static_cast<int>(EpochPlan::BatchesOf(config.samples, 1, config.batch_size));
  if (config.accumulate == 1)
    EXPECT_EQ(Repetition::replays_,
              kEpochs * (steps - 1) - TrainStep::kWarmUpAlone - TrainStep::kWarmUpAgain);
  else
    EXPECT_GT(Repetition::replays_, 0);
  world->Shutdown();
}

INSTANTIATE_TEST_SUITE_P(
    All, TrainSteps,
    testing::Combine(testing::Values(Recipe{"Plain", {}}, Recipe{"Augmented", {.augment = true}},
                                     Recipe{"Muon", {.optimizer = "muon"}},
                                     Recipe{"AdamW", {.optimizer = "adamw"}},
                                     Recipe{"Accumulated", {.nesterov = true, .accumulate = 3}},
                                     Recipe{"ClippedAndAveraged",
                                            {.clip_norm = 0.5, .ema_decay = 0.9}},
                                     Recipe{"PlanesAsTheyAre", {.channels_last = false}}),
                     testing::Bool()),
    RecipeName<testing::TestParamInfo<TrainSteps::ParamType>>);

TEST(TrainStep, GoesOnInTheMiddleOfAnEpoch) {
  const Config config = SmallTraining();
  const auto world = World::Join(WorkerEnv{}, {.backend = BackendChoice::kGloo});
  // What is left begins with a batch that is not full.
  const Trained queued = Train(How::kQueued, config, *world, true, /*consumed=*/95);
  ExpectAlike(Train(How::kReplayed, config, *world, true, 95), queued);
  ExpectAlike(Train(How::kReplayed, config, *world, false, 95), queued);
  world->Shutdown();
}

TEST(TrainStep, OfTwoRanksIsTheSameReplayed) {
  std::unique_ptr<Service> service;
  if (!IsRankProcess()) service = std::make_unique<Service>();
  RunProcesses(
      2, [&](int rank) { return service->EnvOf(rank, 2); },
      [](const WorkerEnv& env) {
        const auto world = World::Join(env, {.backend = BackendChoice::kGloo, .timeout = kTimeout});
        const Config config = SmallTraining({.accumulate = 2});
        const Trained queued = Train(How::kQueued, config, *world, true);
        ExpectAlike(Train(How::kReplayed, config, *world, true), queued);
        // Of an epoch of 100 the last sample is rank 0's alone.
        ExpectAlike(Train(How::kReplayed, config, *world, true, 99),
                    Train(How::kQueued, config, *world, true, 99));
        world->Shutdown();
      });
}

TEST(TrainStep, AnOverflowLeavesAStepOut) {
  Config config = SmallTraining({.ema_decay = 0.5});
  config.amp = Amp::kFp16;  // the scale; a CPU computes in floats all the same
  const auto world = World::Join(WorkerEnv{}, {.backend = BackendChoice::kGloo});
  ExpectAlike(Train(How::kReplayed, config, *world, true),
              Train(How::kQueued, config, *world, true));
  world->Shutdown();
}

}  // namespace
}  // namespace ddprun
