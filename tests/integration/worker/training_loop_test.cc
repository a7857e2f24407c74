// SPDX-License-Identifier: Apache-2.0
// A step that is replayed gives the numbers of one that is queued: with every setting, over the
// ends of epochs, over ranks, with images on the device and with a loader's batches. The device is
// the CPU here; tests/gpu has the same with CUDA graphs.
#include "worker/train/step/training_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/integration/worker/ranks.h"
#include "tests/integration/worker/service.h"
#include "tests/testing/emulated_kernels.h"
#include "tests/testing/trained_steps.h"
#include "worker/train/kernels/kernels.h"

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
              kEpochs * (steps - 1) - StepRecorder::kWarmUpAlone - StepRecorder::kWarmUpAgain);
  else
    EXPECT_GT(Repetition::replays_, 0);
  world->Shutdown();
}

INSTANTIATE_TEST_SUITE_P(
    All, TrainSteps,
    testing::Combine(testing::Values(Recipe{"Plain", {}}, Recipe{"Augmented", {.augment = true}},
                                     Recipe{"Muon", {.optimizer = "muon"}},
                                     Recipe{"AdamW", {.optimizer = "adamw"}},
                                     Recipe{"BFloat16", {.amp = Amp::kBf16}},
                                     Recipe{"PureHalf", {.accumulate = 2, .amp = Amp::kFp16Pure}},
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
        // In an epoch of 100 the last sample is rank 0's alone.
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

// All kernels in a training: batches, norms with their pools, SGD with the weights of bf16.
// LibTorch's operations have the same numbers but for rounding.
TEST(TrainStep, OfKernelsIsNearThatOfOperations) {
  const auto world = World::Join(WorkerEnv{}, {.backend = BackendChoice::kGloo});
  Config config = SmallTraining({.augment = true, .ema_decay = 0.9, .amp = Amp::kBf16});
  config.model = "airbench";
  config.samples = 8;  // a step an epoch: the emulator takes its time
  config.input_size = 12;
  const Trained operations = Train(How::kQueued, config, *world, true);
  const auto kernels = EmulatedKernels();
  const KernelsOnCpu on_cpu(*kernels);
  const Trained queued = Train(How::kQueued, config, *world, true);
  const auto launches = kernels->TakeLaunches();
  for (const char* name : {"make_batch_bf16", "pool_moments_bf16", "norm_gelu_apply_bf16",
                           "pool_input_gradient_bf16", "norm_input_gradient_bf16", "sgd_step_bf16"})
    EXPECT_TRUE(launches.contains(name)) << name;
  ASSERT_EQ(queued.losses.size(), operations.losses.size());
  for (std::size_t i = 0; i < queued.losses.size(); ++i)
    EXPECT_NEAR(queued.losses[i], operations.losses[i], 0.05) << "step " << i;
  world->Shutdown();
}

// Fp16 throughout stays near floats: the loss is summed, as gradients of a mean would vanish.
TEST(TrainStep, PureHalfIsNearFloats) {
  const auto world = World::Join(WorkerEnv{}, {.backend = BackendChoice::kGloo});
  Config config = SmallTraining();
  config.batch_size = 50;
  const Trained floats = Train(How::kQueued, config, *world, true);
  config.amp = Amp::kFp16Pure;
  const Trained halves = Train(How::kQueued, config, *world, true);
  ASSERT_EQ(halves.losses.size(), floats.losses.size());
  for (std::size_t i = 0; i < floats.losses.size(); ++i)
    EXPECT_NEAR(halves.losses[i], floats.losses[i], 0.02) << "step " << i;
  for (std::size_t i = 0; i < floats.parameters.size(); ++i)
    EXPECT_TRUE(at::allclose(halves.parameters[i], floats.parameters[i], 1e-2, 2e-3)) << i;
  world->Shutdown();
}

}  // namespace
}  // namespace ddprun
