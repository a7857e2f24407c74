// SPDX-License-Identifier: Apache-2.0
#include "worker/models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>

#include "worker/unique_tensors.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

std::set<std::string> Keys(const ImageModel& model) {
  std::set<std::string> keys;
  for (const auto& item : model.named_parameters()) keys.insert(item.key());
  for (const auto& item : model.named_buffers()) keys.insert(item.key());
  return keys;
}

std::int64_t Count(const std::vector<at::Tensor>& tensors) {
  std::int64_t count = 0;
  for (const auto& tensor : tensors) count += tensor.numel();
  return count;
}

struct Expected {
  std::string name;
  bool shared_blocks;
  std::int64_t
      parameters;    // sum(p.numel() for p in model.parameters()) of tests/e2e/python_models.py
  std::size_t keys;  // len(model.state_dict())
};

// The test's name in ctest must not hang on where its strings lie.
void PrintTo(const Expected& expected, std::ostream* out) {
  *out << expected.name << (expected.shared_blocks ? "_shared" : "_separate");
}

class EveryModel : public ::testing::TestWithParam<Expected> {};

TEST_P(EveryModel, HasPythonsParametersAndGivesAScoreForEachClass) {
  const auto& expected = GetParam();
  const auto model = MakeModel(expected.name, {.shared_blocks = expected.shared_blocks});
  EXPECT_EQ(Count(UniqueParameters(*model)), expected.parameters);
  EXPECT_EQ(Keys(*model).size(), expected.keys);
  model->eval();
  torch::NoGradGuard no_grad;
  EXPECT_EQ(model->forward(at::randn({2, 3, 32, 32})).sizes(), (std::vector<std::int64_t>{2, 10}));
}

INSTANTIATE_TEST_SUITE_P(All, EveryModel,
                         ::testing::Values(Expected{"netresdeep", true, 76074, 66},
                                           Expected{"netresdeep", false, 159594, 66},
                                           Expected{"resnet18", true, 11173962, 122},
                                           Expected{"resnet34", true, 21282122, 218},
                                           Expected{"resnet50", true, 23520842, 320}));

TEST(Models, EveryNameInTheTableIsTested) {
  EXPECT_THAT(ModelNames(),
              ::testing::ElementsAre("netresdeep", "resnet18", "resnet34", "resnet50"));
}

TEST(Models, UnknownNameIsAnsweredWithTheKnownOnes) {
  try {
    MakeModel("resnet19", {});
    FAIL() << "nothing was thrown";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("resnet19"));
    EXPECT_THAT(error.what(), HasSubstr("netresdeep, resnet18, resnet34, resnet50"));
  }
}

TEST(NetResDeep, StateDictHasTheOriginalsKeys) {
  std::set<std::string> expected = {"conv1.weight", "conv1.bias", "fc1.weight",
                                    "fc1.bias",     "fc2.weight", "fc2.bias"};
  for (int i = 0; i < 10; ++i) {
    const std::string block = "resblocks." + std::to_string(i) + ".";
    expected.insert(block + "conv.weight");
    for (const char* name :
         {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}) {
      expected.insert(block + "batch_norm." + name);
    }
  }
  EXPECT_EQ(Keys(*MakeModel("netresdeep", {.shared_blocks = true})), expected);
  EXPECT_EQ(Keys(*MakeModel("netresdeep", {.shared_blocks = false})), expected);
}

TEST(NetResDeep, SharedBlocksAreOneBlock) {
  for (const bool shared : {true, false}) {
    const auto parameters = MakeModel("netresdeep", {.shared_blocks = shared})->named_parameters();
    EXPECT_EQ(parameters["resblocks.0.conv.weight"].is_same(parameters["resblocks.9.conv.weight"]),
              shared);
  }
}

TEST(NetResDeep, StartsAsTheOriginalDoes) {
  const auto model = MakeModel("netresdeep", {.shared_blocks = false});
  const auto parameters = model->named_parameters();
  for (const char* block : {"resblocks.0.", "resblocks.7."}) {
    const std::string prefix = block;
    EXPECT_TRUE((parameters[prefix + "batch_norm.weight"] == 0.5).all().item<bool>());
    EXPECT_TRUE((parameters[prefix + "batch_norm.bias"] == 0).all().item<bool>());
    // Kaiming-normal over a fan-in of 32 * 9, within what 9216 samples allow.
    EXPECT_NEAR(parameters[prefix + "conv.weight"].std().item<double>(), std::sqrt(2.0 / 288),
                0.004);
  }
}

TEST(ResNet, HasTorchvisionsNames) {
  EXPECT_THAT(
      Keys(*MakeModel("resnet18", {})),
      IsSupersetOf({"conv1.weight", "bn1.running_var", "layer1.0.conv1.weight", "layer1.1.bn2.bias",
                    "layer2.0.downsample.0.weight", "layer2.0.downsample.1.num_batches_tracked",
                    "layer4.1.conv2.weight", "fc.weight", "fc.bias"}));
  EXPECT_THAT(Keys(*MakeModel("resnet50", {})),
              IsSupersetOf({"layer1.0.downsample.0.weight", "layer1.0.conv3.weight",
                            "layer3.5.bn3.running_mean"}));
}

TEST(ResNet, StartsAsTorchvisionsDoes) {
  const auto parameters = MakeModel("resnet18", {})->named_parameters();
  EXPECT_NEAR(parameters["layer4.1.conv2.weight"].std().item<double>(), std::sqrt(2.0 / (512 * 9)),
              0.0005);
  EXPECT_TRUE((parameters["layer2.0.bn1.weight"] == 1).all().item<bool>());
}

TEST(UniqueTensors, ListsASharedOneOnce) {
  const auto model = MakeModel("netresdeep", {.shared_blocks = true});
  EXPECT_EQ(UniqueParameters(*model).size(), 9u);
  EXPECT_EQ(UniqueBuffers(*model).size(), 3u);
}

TEST(UseChannelsLast, ChangesTheLayoutAndNoNumber) {
  torch::manual_seed(1);
  const auto model = MakeModel("netresdeep", {});
  torch::NoGradGuard no_grad;
  model->eval();
  const at::Tensor images = at::randn({4, 3, 32, 32});
  const at::Tensor before = model->forward(images);
  UseChannelsLast(*model);
  const auto weight = model->named_parameters()["resblocks.3.conv.weight"];
  EXPECT_TRUE(weight.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(weight.is_same(model->named_parameters()["resblocks.0.conv.weight"]));
  EXPECT_TRUE(at::allclose(model->forward(images.contiguous(at::MemoryFormat::ChannelsLast)),
                           before, 1e-4, 1e-5));
}

}  // namespace
}  // namespace ddprun
