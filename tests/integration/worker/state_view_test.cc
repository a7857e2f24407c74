// SPDX-License-Identifier: Apache-2.0
// A tensor that is new in the state of a training, here of an optimizer that a test adds, is saved,
// compared, sent to another rank, copied to go back to and put back after dummy steps, as all
// others are.
#include "worker/train/training/state_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/worker/in_world.h"
#include "worker/train/data/dataset.h"
#include "worker/train/optimizer/optimizer.h"
#include "worker/train/replicas/tensor_copy.h"
#include "worker/train/replicas/tensor_sums.h"
#include "worker/train/step/graph_steps.h"
#include "worker/train/step/training_state.h"
#include "worker/train/training/kept_training.h"
#include "worker/train/training/round_start.h"
#include "worker/train/training/training_snapshot.h"
#include "worker/train/training/warm_up.h"

namespace ddprun {
namespace {

using testing::Contains;
using testing::Not;

// Counts the steps of each parameter.
class CountingOptimizer : public Optimizer {
 public:
  explicit CountingOptimizer(NamedTensors parameters) : Optimizer(std::move(parameters)) {
    counts_ = MakeState("count");
  }
  void Step(const at::Tensor&, const at::Tensor&) override {
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& count : counts_) count.add_(1);
  }

 private:
  std::vector<at::Tensor> counts_;
};
const bool kCountingAdded = Optimizers().Add(
    "counting", [](const Config&, const NamedTensors& parameters, const StepSize&) {
      return std::make_unique<CountingOptimizer>(parameters);
    });

Config Counting() {
  Config config;
  config.model = "simple-cnn";
  config.dataset = "synthetic";
  config.samples = 64;
  config.batch_size = 8;
  config.input_size = 16;
  config.epochs = 2;
  config.eval = false;
  config.optimizer = "counting";
  config.ema_decay = 0.9;
  config.backend = BackendChoice::kGloo;
  config.device = DeviceChoice::kCpu;
  return config;
}

// A rank's parts, none of which has been trained.
struct Begun {
  explicit Begun(World& of) : world(of) {
    kept.Join(config, data, {.world = world, .console = console});
    kept.Accept({});
    kept.parts->strategy->Train();
  }

  std::vector<StateTensor> State() const { return StateView(*kept.parts).tensors(); }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const StateTensor& one : State()) names.push_back(one.name);
    return names;
  }
  // Every number becomes `value`.
  void Fill(double value) const {
    const torch::NoGradGuard no_grad;
    for (const StateTensor& one : State()) at::Tensor(one.tensor).fill_(value);
  }

  const Config config = Counting();
  const Dataset data =
      OpenDataset(config.dataset, {.seed = 1, .samples = config.samples, .input_size = 16});
  World& world;
  Console console{{}};
  KeptTraining kept{std::chrono::steady_clock::now()};
};

bool HasOnly(const at::Tensor& tensor, double value) {
  return torch::all(tensor.to(at::kDouble) == value).item<bool>();
}

TEST(StateView, HoldsWhatAnOptimizerAddsToTheState) {
  InWorld(1, [](World& world) {
    const Begun begun(world);
    EXPECT_THAT(begun.Names(), Contains("optimizer/fc1.weight/count"));
    EXPECT_THAT(begun.Names(), Contains("ema/fc1.weight"));
    EXPECT_THAT(begun.Names(), Contains("model/fc1.weight"));
  });
}

TEST(StateView, IsWhatIsSavedAndRead) {
  InWorld(1, [](World& world) {
    const Begun begun(world);
    begun.Fill(3);
    TrainingSnapshot snapshot(begun.config, begun.data, world, *begun.kept.parts);
    const Snapshot saved = snapshot.Complete(snapshot.Gather(), {}, "training");
    std::vector<std::string> names;
    for (const auto& [name, tensor] : saved.tensors) {
      names.push_back(name);
      EXPECT_TRUE(HasOnly(tensor, 3)) << name;
    }
    for (const StateTensor& one : begun.State()) {
      if (one.saved)
        EXPECT_THAT(names, Contains(one.name));
      else
        EXPECT_THAT(names, Not(Contains(one.name)));
    }
  });
}

TEST(StateView, IsWhatRanksCompare) {
  InWorld(1, [](World& world) {
    const Begun begun(world);
    const auto sum = [&] {
      const auto compared = StateView(*begun.kept.parts).UpTo(HeldBy::kAllAlike);
      return SumOf(compared, at::kCPU).item<std::int64_t>();
    };
    const torch::NoGradGuard no_grad;
    for (const StateTensor& one : begun.State()) {
      const std::int64_t before = sum();
      at::Tensor(one.tensor).add_(1);
      EXPECT_EQ(sum() != before, one.held == HeldBy::kAllAlike) << one.name;
    }
  });
}

TEST(StateView, IsWhatACopyGoesBackTo) {
  InWorld(1, [](World& world) {
    const Begun begun(world);
    begun.Fill(3);
    const auto all = StateView(*begun.kept.parts).UpTo(HeldBy::kItselfOnly);
    TensorCopy copy;
    copy.Keep(all);
    begun.Fill(5);
    copy.CopyTo(all);
    for (const StateTensor& one : begun.State()) EXPECT_TRUE(HasOnly(one.tensor, 3)) << one.name;
  });
}

TEST(StateView, IsWhatAnotherRankReceives) {
  InWorld(2, [](World& world) {
    Begun begun(world);
    begun.Fill(world.rank() == 0 ? 3 : 5);
    ReceiveState(world, {.goes_on = true, .sends = true, .receives = world.rank() == 1},
                 begun.kept);
    for (const StateTensor& one : begun.State())
      EXPECT_EQ(HasOnly(one.tensor, 3), world.rank() == 0 || one.held != HeldBy::kItselfOnly)
          << one.name;
  });
}

TEST(StateView, IsAsBeforeAfterDummySteps) {
  InWorld(1, [](World& world) {
    const Begun begun(world);
    GraphSteps graph_steps;
    const auto loop = begun.kept.parts->MakeLoop(graph_steps);
    const TrainingState state(begun.config, begun.data.train->size(), world.size());
    std::vector<at::Tensor> before;
    for (const StateTensor& one : begun.State()) before.push_back(one.tensor.detach().clone());
    WarmUp(begun.config, begun.data, world, *begun.kept.parts, *loop, state);
    const auto after = begun.State();
    ASSERT_EQ(after.size(), before.size());
    for (std::size_t i = 0; i < before.size(); ++i)
      EXPECT_TRUE(torch::equal(after[i].tensor, before[i])) << after[i].name;
  });
}

}  // namespace
}  // namespace ddprun
