// SPDX-License-Identifier: Apache-2.0
#include "worker/train/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/unit/worker/data_fixture.h"
#include "tests/unit/worker/temp_files.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Dataset, UnknownNameIsAnsweredWithTheKnownOnes) {
  EXPECT_THAT(
      MessageOf<std::invalid_argument>([] { OpenDataset("imagenet", {}); }),
      AllOf(HasSubstr("imagenet"),
            HasSubstr("cifar10, cifar100, fashion-mnist, idx, imagefolder, random, synthetic")));
}

TEST(Synthetic, IsAFunctionOfTheSeed) {
  const Dataset a = OpenDataset("synthetic", {.seed = 5, .samples = 64});
  const Dataset b = OpenDataset("synthetic", {.seed = 5, .samples = 64});
  const Dataset c = OpenDataset("synthetic", {.seed = 6, .samples = 64});
  EXPECT_TRUE(Images(*a.train).equal(Images(*b.train)));
  EXPECT_TRUE(Labels(*a.test).equal(Labels(*b.test)));
  EXPECT_FALSE(Images(*a.train).equal(Images(*c.train)));
}

TEST(Synthetic, HasTheShapeThatIsAskedFor) {
  const Dataset set = OpenDataset("synthetic", {.samples = 40, .input_size = 13, .classes = 3});
  EXPECT_EQ(set.train->size(), 40);
  EXPECT_EQ(set.test->size(), 10);
  EXPECT_EQ(set.classes, 3);
  EXPECT_EQ(Images(*set.train).sizes(), (std::vector<std::int64_t>{40, 3, 13, 13}));
  EXPECT_EQ(Labels(*set.train).max().item<std::int64_t>(), 2);
  EXPECT_EQ(OpenDataset("synthetic", {.samples = 1}).test->size(), 1);
}

TEST(Synthetic, MoreThanFitsIsRefused) {
  EXPECT_THAT(
      MessageOf<DataError>([] { OpenDataset("synthetic", {.samples = std::int64_t{1} << 40}); }),
      AllOf(HasSubstr("--samples"), HasSubstr("16 GiB")));
  EXPECT_THAT(
      MessageOf<DataError>([] { OpenDataset("synthetic", {.input_size = std::int64_t{1} << 40}); }),
      HasSubstr("--input-size"));
  EXPECT_THAT(
      MessageOf<DataError>([] { OpenDataset("random", {.classes = std::int64_t{1} << 40}); }),
      HasSubstr("--num-classes"));
}

TEST(Random, HasRowsAndTwoClassesOfAboutTheSameSize) {
  const Dataset set = OpenDataset("random", {.seed = 1, .samples = 400, .input_size = 50});
  EXPECT_EQ(set.classes, 2);
  EXPECT_EQ(Images(*set.train).sizes(), (std::vector<std::int64_t>{400, 1, 1, 50}));
  EXPECT_NEAR(Labels(*set.train).to(at::kFloat).mean().item<double>(), 0.5, 0.15);
  EXPECT_FALSE(Images(*set.train)[0].equal(Images(*set.train)[1]));
  EXPECT_FALSE(Images(*set.train)[0].equal(Images(*set.test)[0]));
}

TEST(Random, IsNotVaried) {
  const Dataset set = OpenDataset("random", {.samples = 4});
  const Draw draw{};
  at::Tensor varied = at::empty({1, 1, 32});
  set.train->Write(2, &draw, /*channels_last=*/false, varied.data_ptr<float>());
  EXPECT_TRUE(varied.equal(Images(*set.train)[2]));
}

// The class whose mean training image is nearest is right for most test images: there is something
// to learn, and it carries over from training to test.
TEST(Synthetic, CanBeLearnt) {
  const Dataset set = OpenDataset("synthetic", {.seed = 1});
  const at::Tensor train = Images(*set.train).flatten(1);
  const at::Tensor test = Images(*set.test).flatten(1);
  const at::Tensor labels = Labels(*set.train);
  std::vector<at::Tensor> means;
  for (std::int64_t label = 0; label < set.classes; ++label) {
    means.push_back(train.index({labels == label}).mean(0));
  }
  const at::Tensor nearest = at::cdist(test, at::stack(means)).argmin(1);
  EXPECT_GT((nearest == Labels(*set.test)).to(at::kFloat).mean().item<double>(), 0.95);
}

TEST(Synthetic, NoPixelTellsTheClass) {
  const Dataset set = OpenDataset("synthetic", {.seed = 1});
  const at::Tensor pixel =
      Images(*set.train).index({Labels(*set.train) == 0}).select(1, 0).select(1, 5).select(1, 5);
  EXPECT_GT(pixel.std().item<double>(), 20.0 / 255 / 0.25);
}

}  // namespace
}  // namespace ddprun
