// SPDX-License-Identifier: Apache-2.0
// A model cut into modules: each has its own tensors under the whole model's names, and what a part
// costs is told without leaving a trace.
#include "worker/train/pipeline/stage_module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "worker/library/base/unique_tensors.h"
#include "worker/train/pipeline/part_costs.h"

namespace ddprun {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Gt;
using testing::IsEmpty;
using testing::SizeIs;

std::shared_ptr<ImageModel> Make(const std::string& name, bool shared_blocks = true) {
  torch::manual_seed(1);
  return MakeModel(name, {.shared_blocks = shared_blocks});
}

std::vector<std::string> NamesOf(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& entry : tensors) names.push_back(entry.first);
  return names;
}

TEST(StageModule, HasItsPartsTensorsUnderTheModelsNames) {
  const auto model = Make("netresdeep");
  const auto stages = CutIntoStages(*model, {0, 1, 2});
  ASSERT_THAT(stages, SizeIs(3));
  EXPECT_THAT(NamesOf(stages[0]->own_parameters()), ElementsAre("conv1.weight", "conv1.bias"));
  EXPECT_THAT(NamesOf(stages[1]->own_parameters()),
              ElementsAre("resblocks.0.conv.weight", "resblocks.0.batch_norm.weight",
                          "resblocks.0.batch_norm.bias"));
  EXPECT_THAT(stages[1]->own_buffers(), SizeIs(3));
  EXPECT_THAT(stages[2]->own_buffers(), IsEmpty());
}

TEST(StageModule, StagesAfterEachOtherAreTheModel) {
  for (const char* name : {"netresdeep", "resnet18"}) {
    SCOPED_TRACE(name);
    const auto model = Make(name, /*shared_blocks=*/false);
    const std::size_t parts = model->Parts().size();
    std::vector<std::size_t> cuts(parts);
    for (std::size_t i = 0; i < parts; ++i) cuts[i] = i;
    const at::Tensor images = at::rand({2, 3, 32, 32});
    model->eval();
    at::Tensor scores = images;
    for (const auto& stage : CutIntoStages(*model, cuts)) scores = stage->forward(scores);
    EXPECT_TRUE(at::equal(scores, model->forward(images)));
  }
}

TEST(StageModule, ReleasedTensorsAreRestoredByName) {
  const auto model = Make("resnet18");
  const auto stages = CutIntoStages(*model, {0, 5});
  NamedTensors saved;
  for (const auto& [name, tensor] : stages[1]->own_parameters())
    saved.emplace_back(name, tensor.detach().clone());
  for (const auto& [name, tensor] : stages[1]->own_buffers())
    saved.emplace_back(name, tensor.clone());
  Release(*stages[1]);
  EXPECT_EQ(stages[1]->own_parameters().back().second.numel(), 0);
  EXPECT_GT(stages[0]->own_parameters().back().second.numel(), 0);
  Restore(*model, saved);
  const auto expected = Make("resnet18");
  EXPECT_TRUE(torch::equal(model->named_parameters()["fc.weight"],
                           expected->named_parameters()["fc.weight"]));
  EXPECT_TRUE(torch::equal(model->named_buffers()["layer4.1.bn2.running_var"],
                           expected->named_buffers()["layer4.1.bn2.running_var"]));
}

// One child in no part.
class Forgetful : public ImageModel {
 public:
  Forgetful() {
    register_module("a", torch::nn::Linear(2, 2));
    register_module("b", torch::nn::Linear(2, 2));
  }
  std::vector<ModelPart> Parts() override {
    const auto same = [](const at::Tensor& x) { return x; };
    return {{"a", {"a"}, same}, {"again", {}, same}};
  }
};

TEST(StageModule, AModelWhosePartsForgetAChildIsRefused) {
  Forgetful model;
  EXPECT_THROW(CutIntoStages(model, {0, 1}), std::logic_error);
}

TEST(PartCosts, AreTakenWithoutChangingTheModel) {
  const auto model = Make("netresdeep", /*shared_blocks=*/false);
  const auto untouched = Make("netresdeep", /*shared_blocks=*/false);
  const at::Tensor images = at::rand({4, 3, 32, 32});
  const auto measured = MeasuredCosts(*model, images, [] {});
  const auto estimated = EstimatedCosts(*model, images);
  EXPECT_THAT(measured, SizeIs(12));
  EXPECT_THAT(measured, Each(Gt(0)));
  EXPECT_THAT(estimated, SizeIs(12));
  EXPECT_THAT(estimated, Each(Gt(0)));
  const auto buffers = model->buffers();
  const auto expected = untouched->buffers();
  for (std::size_t i = 0; i < buffers.size(); ++i)
    EXPECT_TRUE(at::equal(buffers[i], expected[i])) << i;
  for (const at::Tensor& parameter : model->parameters()) EXPECT_FALSE(parameter.grad().defined());
}

TEST(PartCosts, EqualBlocksAreEstimatedEqual) {
  const auto model = Make("netresdeep", /*shared_blocks=*/false);
  const auto costs = EstimatedCosts(*model, at::rand({1, 3, 32, 32}));
  for (std::size_t i = 2; i <= 10; ++i) EXPECT_EQ(costs[i], costs[1]);
  EXPECT_EQ(EstimatedCosts(*model, at::rand({1, 3, 32, 32})), costs);
}

}  // namespace
}  // namespace ddprun
