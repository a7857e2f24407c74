// SPDX-License-Identifier: Apache-2.0
// A step that is a CUDA graph beside the same step operation by operation, and that the host waits
// for nothing in it.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ddprun/world.h"
#include "proto/worker_env.h"
#include "tests/gpu/device.h"
#include "tests/testing/trained_steps.h"
#include "worker/library/accelerator/accelerator.h"

namespace ddprun {
namespace {

class GpuSteps : public testing::TestWithParam<std::tuple<Recipe, bool>> {
 protected:
  void SetUp() override {
    DDPRUN_NEEDS_GPUS(1);
    world_ = World::Join(WorkerEnv{}, {.backend = BackendChoice::kNccl});
    LoadAccelerator().UseOwnStream(world_->device().index());
  }
  void TearDown() override {
    if (!world_) return;
    LoadAccelerator().OnWait(0);
    world_->Shutdown();
  }

  Trained Train(How how, const Config& config, bool resident,
                const std::function<void(std::int64_t)>& before_step = {}) {
    return TrainBy(how, config, *world_, resident, LoadAccelerator().GraphMaker(),
                   /*consumed=*/0, before_step);
  }

  std::unique_ptr<World> world_;
};

TEST_P(GpuSteps, AreTheSameHoweverTheyAreMade) {
  const auto& [recipe, resident] = GetParam();
  const Config config = SmallTraining(recipe.config);
  const Trained queued = Train(How::kQueued, config, resident);
  ExpectAlike(Train(How::kReplayed, config, resident), queued);
}

TEST_P(GpuSteps, WaitForNothing) {
  const auto& [recipe, resident] = GetParam();
  const Config config = SmallTraining(recipe.config);
  for (const How how : {How::kQueued, How::kReplayed}) {
    // The first ones choose kernels, and the graph is captured.
    const auto watch = [](std::int64_t step) {
      LoadAccelerator().OnWait(step > StepRecorder::kWarmUpAlone ? 2 : 0);
    };
    EXPECT_NO_THROW(Train(how, config, resident, watch));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, GpuSteps,
    testing::Combine(
        testing::Values(Recipe{"Plain", {}}, Recipe{"Augmented", {.augment = true}},
                        Recipe{"Muon", {.optimizer = "muon"}},
                        Recipe{"AdamWInBFloat16", {.optimizer = "adamw", .amp = Amp::kBf16}},
                        Recipe{"AveragedInHalf",
                               {.nesterov = true, .ema_decay = 0.9, .amp = Amp::kFp16}},
                        Recipe{"PureHalf", {.accumulate = 2, .amp = Amp::kFp16Pure}},
                        Recipe{"Accumulated", {.label_smoothing = 0.1, .accumulate = 2}},
                        Recipe{"PlanesAsTheyAre", {.channels_last = false}}),
        testing::Bool()),
    RecipeName<testing::TestParamInfo<GpuSteps::ParamType>>);

}  // namespace
}  // namespace ddprun
