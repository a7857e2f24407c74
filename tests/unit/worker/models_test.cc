// SPDX-License-Identifier: Apache-2.0
#include "worker/train/models/models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <set>

#include "worker/library/base/unique_tensors.h"

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
  ModelOptions options;
  std::int64_t
      parameters;    // sum(p.numel() for p in model.parameters()) of tests/e2e/python_models.py
  std::size_t keys;  // len(model.state_dict())
};

// The test's name in ctest must not hang on where its strings lie.
void PrintTo(const Expected& expected, std::ostream* out) {
  *out << expected.name << (expected.options.shared_blocks ? "_shared_" : "_separate_")
       << expected.options.stem;
}

class EveryModel : public ::testing::TestWithParam<Expected> {};

TEST_P(EveryModel, HasPythonsParametersAndGivesAScoreForEachClass) {
  const auto& expected = GetParam();
  const auto model = MakeModel(expected.name, expected.options);
  EXPECT_EQ(Count(UniqueParameters(*model)), expected.parameters);
  EXPECT_EQ(Keys(*model).size(), expected.keys);
  model->eval();
  torch::NoGradGuard no_grad;
  EXPECT_EQ(model->forward(at::randn({2, 3, 32, 32})).sizes(), (std::vector<std::int64_t>{2, 10}));
}

// What a pipeline relies on.
TEST_P(EveryModel, EveryTensorIsInExactlyOnePart) {
  const auto model = MakeModel(GetParam().name, GetParam().options);
  auto tensors = model->named_parameters().pairs();
  for (const auto& buffer : model->named_buffers().pairs()) tensors.push_back(buffer);
  std::map<const void*, std::set<std::string>> parts_of;
  std::set<std::string> named;
  for (const ModelPart& part : model->Parts()) {
    for (const std::string& module : part.modules) {
      for (const auto& [key, tensor] : tensors) {
        if (!key.starts_with(module + ".")) continue;
        named.insert(key);
        parts_of[tensor.unsafeGetTensorImpl()].insert(part.name);
      }
    }
  }
  EXPECT_EQ(named, Keys(*model));
  for (const auto& [tensor, parts] : parts_of) EXPECT_EQ(parts.size(), 1u) << *parts.begin();
}

INSTANTIATE_TEST_SUITE_P(
    All, EveryModel,
    ::testing::Values(Expected{"linear", {}, 30730, 2}, Expected{"simple-cnn", {}, 62006, 10},
                      Expected{"netresdeep", {.shared_blocks = true}, 76074, 66},
                      Expected{"netresdeep", {}, 159594, 66}, Expected{"airbench", {}, 1972792, 39},
                      Expected{"resnet18", {}, 11173962, 122},
                      Expected{"resnet34", {}, 21282122, 218},
                      Expected{"resnet50", {}, 23520842, 320},
                      // torchvision's numbers (11689512 and 25557032) with ten classes.
                      Expected{"resnet18", {.stem = "imagenet"}, 11689512 - 990 * 513, 122},
                      Expected{"resnet50", {.stem = "imagenet"}, 25557032 - 990 * 2049, 320}));

TEST(Models, EveryNameInTheTableIsTested) {
  EXPECT_THAT(Models().Names(),
              ::testing::ElementsAre("airbench", "linear", "netresdeep",
                                     "perceptron",  // models_example.cc
                                     "resnet18", "resnet34", "resnet50", "simple-cnn",
                                     "torchscript"));  // tests/e2e/test_model_file.py
}

TEST(Models, TakeImagesOfOtherSizesAndChannels) {
  torch::NoGradGuard no_grad;
  const auto shape = [](const std::string& name, const ModelOptions& options) {
    const auto model = MakeModel(name, options);
    model->eval();
    return model->forward(at::randn({2, options.in_channels, options.height, options.width}))
        .sizes()
        .vec();
  };
  const std::vector<std::int64_t> scores = {2, 7};
  EXPECT_EQ(shape("linear", {.in_channels = 1, .height = 1, .width = 20, .classes = 7}), scores);
  for (const char* name : {"simple-cnn", "netresdeep", "resnet18"}) {
    EXPECT_EQ(shape(name, {.in_channels = 1, .height = 28, .width = 36, .classes = 7}), scores);
  }
  EXPECT_EQ(shape("resnet18", {.height = 64, .width = 64, .classes = 7, .stem = "imagenet"}),
            scores);
  EXPECT_EQ(shape("simple-cnn", {.height = 16, .width = 16, .classes = 7}), scores);
}

TEST(Models, ImagesThatAreTooSmallAreNamed) {
  const auto message = [](const std::string& name, std::int64_t height, std::int64_t width) {
    try {
      MakeModel(name, {.height = height, .width = width});
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_EQ(message("simple-cnn", 8, 8),
            "--model simple-cnn takes images of at least 16x16 pixels, but the data set's have "
            "8x8; choose another --model or a larger --input-size");
  EXPECT_THAT(message("netresdeep", 1, 20),
              HasSubstr("at least 4x4 pixels, but the data set's have 1x20"));
}

TEST(Models, UnknownNameIsAnsweredWithTheKnownOnes) {
  try {
    MakeModel("resnet19", {});
    FAIL() << "nothing was thrown";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("resnet19"));
    EXPECT_THAT(error.what(), HasSubstr("netresdeep, perceptron, resnet18, resnet34, resnet50"));
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

TEST(NetResDeep, HasBlocksOfTheirOwnByDefault) {
  const auto parameters = MakeModel("netresdeep", {})->named_parameters();
  EXPECT_FALSE(
      parameters["resblocks.0.conv.weight"].is_same(parameters["resblocks.9.conv.weight"]));
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
  const auto model = MakeModel("netresdeep", {.shared_blocks = true});
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
