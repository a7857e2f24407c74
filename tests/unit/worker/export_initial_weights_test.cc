// SPDX-License-Identifier: Apache-2.0
#include "worker/train/export/initial_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <torch/torch.h>

#include "tests/unit/worker/small_snapshot.h"
#include "tests/unit/worker/temp_files.h"
#include "worker/library/files/safetensors.h"
#include "worker/library/files/state_dict.h"
#include "worker/train/export/model_file.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

const ModelOptions kSmall = {.height = 16, .width = 16, .classes = 3};

std::shared_ptr<ImageModel> Make(std::int64_t seed, ModelOptions options = kSmall) {
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  return MakeModel("simple-cnn", options);
}

Config From(const std::string& path) {
  Config config;
  config.model = "simple-cnn";
  config.init_from = path;
  return config;
}

bool Same(const ImageModel& a, const ImageModel& b, const std::string& name) {
  return at::equal(a.named_parameters()[name], b.named_parameters()[name]);
}

TEST(InitialWeights, ComeFromEitherFormat) {
  const TempFiles files;
  const auto given = Make(1);
  SaveStateDict(*given, files.Path("a.pth"));
  WriteSafetensors(files.Path("b.safetensors"), StateDict(*given));
  for (const char* name : {"a.pth", "b.safetensors"}) {
    const auto model = Make(2);
    EXPECT_EQ(LoadInitialWeights(*model, From(files.Path(name))),
              "starting from the weights in " + files.Path(name));
    for (const auto& item : given->named_parameters())
      EXPECT_TRUE(Same(*model, *given, item.key())) << item.key();
  }
}

TEST(InitialWeights, AHeadOfOtherClassesStaysAsItIs) {
  const TempFiles files;
  ModelOptions other = kSmall;
  other.classes = 5;
  const auto given = Make(1, other);
  SaveStateDict(*given, files.Path("a.pth"));
  const auto model = Make(2);
  const auto fresh = Make(2);
  EXPECT_THAT(LoadInitialWeights(*model, From(files.Path("a.pth"))),
              HasSubstr(", but fc3, which is for 5 classes there, from random ones"));
  EXPECT_TRUE(Same(*model, *fresh, "fc3.weight"));
  EXPECT_TRUE(Same(*model, *fresh, "fc3.bias"));
  EXPECT_TRUE(Same(*model, *given, "fc2.weight"));
}

TEST(InitialWeights, WhatDoesNotFitChangesNothing) {
  const TempFiles files;
  NamedTensors state = StateDict(*Make(1));
  std::erase_if(state, [](const auto& item) { return item.first == "fc2.bias"; });
  WriteSafetensors(files.Path("a.safetensors"), state);
  const auto model = Make(2);
  EXPECT_EQ(MessageOf<std::runtime_error>(
                [&] { LoadInitialWeights(*model, From(files.Path("a.safetensors"))); }),
            "--init-from " + files.Path("a.safetensors") +
                " does not fit the model; missing: fc2.bias; check --model and --stem");
  EXPECT_TRUE(Same(*model, *Make(2), "conv1.weight"));
}

// The model's own name goes before a wrapper's.
TEST(InitialWeights, ATensorUnderTwoNamesIsUnexpected) {
  const TempFiles files;
  NamedTensors state = {{"module.fc2.bias", at::zeros({1})}};
  for (const auto& item : StateDict(*Make(1))) state.push_back(item);
  WriteSafetensors(files.Path("a.safetensors"), state);
  EXPECT_THAT(MessageOf<std::runtime_error>(
                  [&] { LoadInitialWeights(*Make(2), From(files.Path("a.safetensors"))); }),
              HasSubstr(" does not fit the model; unexpected: module.fc2.bias; check"));
}

TEST(InitialWeights, HalfPrecisionIsRead) {
  const TempFiles files;
  NamedTensors state;
  for (const auto& [name, tensor] : StateDict(*Make(1)))
    state.emplace_back(name, tensor.detach().to(at::kHalf));
  WriteSafetensors(files.Path("a.safetensors"), state);
  const auto model = Make(2);
  LoadInitialWeights(*model, From(files.Path("a.safetensors")));
  const at::Tensor weight = model->named_parameters()["fc1.weight"];
  EXPECT_EQ(weight.scalar_type(), at::kFloat);
  EXPECT_TRUE(
      at::equal(weight, Make(1)->named_parameters()["fc1.weight"].to(at::kHalf).to(at::kFloat)));
}

// As a program of its own that saves by ddprun::Checkpoints leaves one.
TEST(InitialWeights, ACheckpointThatDoesNotNameItsModelIsNamed) {
  const TempFiles files;
  const std::string path = WriteSmall(files.folder(), 3);
  EXPECT_EQ(MessageOf<std::runtime_error>([&] { ReadModelFile(path, {}); }),
            path +
                " does not say what its model is: its metadata have no 'data'; name another "
                "checkpoint");
}

TEST(InitialWeights, AFifoIsNotWaitedFor) {
  const TempFiles files;
  ASSERT_EQ(mkfifo(files.Path("a.pth").c_str(), 0600), 0);
  EXPECT_EQ(MessageOf<std::runtime_error>([&] { ReadModelFile(files.Path("a.pth"), {}); }),
            "cannot open " + files.Path("a.pth") + ": it is not a regular file");
}

}  // namespace
}  // namespace ddprun
