// SPDX-License-Identifier: Apache-2.0
// Parameters on several devices, as those of a pipeline in one process. The second device is
// `meta`, which has no values.
#include "worker/train/optimizer/by_device.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/train/optimizer/optimizer.h"

namespace ddprun {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct SeenStep {
  std::vector<std::string> names;
  at::Device device = at::kCPU;
  std::vector<at::Device> numbers;  // of rate, and of skip if there is one
};

std::vector<SeenStep>& Steps() {
  static std::vector<SeenStep> steps;
  return steps;
}

// Records what it is given.
class Recorder : public Optimizer {
 public:
  explicit Recorder(NamedTensors parameters) : Optimizer(std::move(parameters)) { MakeState("s"); }

  void Step(const at::Tensor& rate, const at::Tensor& skip) override {
    SeenStep step{.device = parameters_.at(0).second.device(), .numbers = {rate.device()}};
    for (const auto& [name, parameter] : parameters_) step.names.push_back(name);
    if (skip.defined()) step.numbers.push_back(skip.device());
    Steps().push_back(step);
  }
};

std::unique_ptr<Optimizer> MakeRecorder(const Config&, NamedTensors parameters, const StepSize&) {
  return std::make_unique<Recorder>(std::move(parameters));
}

const bool kRecorderAdded = Optimizers().Add("recorder", MakeRecorder);

at::Tensor On(at::Device device) { return at::zeros({2}, at::TensorOptions(device)); }

TEST(ByDevice, KeepsTheOrderOfDevicesAndOfTensors) {
  const std::vector<at::Tensor> tensors = {On(at::kMeta), On(at::kCPU), On(at::kMeta),
                                           On(at::kCPU)};
  const auto groups = ByDevice(tensors);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_TRUE(groups[0][0].is_same(tensors[0]) && groups[0][1].is_same(tensors[2]));
  EXPECT_TRUE(groups[1][0].is_same(tensors[1]) && groups[1][1].is_same(tensors[3]));
  EXPECT_THAT(ByDevice(std::vector<at::Tensor>{}), IsEmpty());
}

TEST(OptimizerPerDevice, EachStepsWithNumbersOnItsDevice) {
  Config config;
  config.optimizer = "recorder";
  Steps().clear();
  const auto optimizer =
      MakeOptimizer(config, {{"a", On(at::kCPU)}, {"b", On(at::kMeta)}, {"c", On(at::kCPU)}});
  optimizer->Step(RateOn(at::kCPU, 0.1), at::zeros({}));
  optimizer->Step(RateOn(at::kCPU, 0.1), {});
  ASSERT_EQ(Steps().size(), 4u);
  for (const std::size_t i : {0, 2}) {
    EXPECT_THAT(Steps()[i].names, ElementsAre("a", "c"));
    EXPECT_EQ(Steps()[i].device, at::kCPU);
    EXPECT_THAT(Steps()[i + 1].names, ElementsAre("b"));
    EXPECT_EQ(Steps()[i + 1].device, at::kMeta);
  }
  EXPECT_THAT(Steps()[0].numbers, ElementsAre(at::kCPU, at::kCPU));
  EXPECT_THAT(Steps()[1].numbers, ElementsAre(at::kMeta, at::kMeta));
  EXPECT_THAT(Steps()[3].numbers, ElementsAre(at::kMeta));
  std::vector<std::string> state;
  for (const auto& [name, tensor] : optimizer->State()) state.push_back(name);
  EXPECT_THAT(state, ElementsAre("a/s", "c/s", "b/s"));
}

TEST(OptimizerPerDevice, OneDeviceTakesTheOptimizerItself) {
  Config config;
  config.optimizer = "recorder";
  const auto optimizer = MakeOptimizer(config, {{"a", On(at::kCPU)}, {"b", On(at::kCPU)}});
  EXPECT_NE(dynamic_cast<Recorder*>(optimizer.get()), nullptr);
}

}  // namespace
}  // namespace ddprun
