// SPDX-License-Identifier: Apache-2.0
#include "worker/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/unit/worker/temp_files.h"
#include "worker/synthetic.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Dataset, UnknownNameIsAnsweredWithTheKnownOnes) {
  EXPECT_THAT(MessageOf<std::invalid_argument>([] { OpenDataset("imagenet", {}); }),
              AllOf(HasSubstr("imagenet"), HasSubstr("cifar10, fashion-mnist, synthetic")));
}

TEST(Synthetic, IsAFunctionOfTheSeed) {
  const Dataset a = OpenDataset("synthetic", {.seed = 5});
  const Dataset b = OpenDataset("synthetic", {.seed = 5});
  const Dataset c = OpenDataset("synthetic", {.seed = 6});
  EXPECT_TRUE(a.train.images.equal(b.train.images));
  EXPECT_TRUE(a.test.labels.equal(b.test.labels));
  EXPECT_FALSE(a.train.images.equal(c.train.images));
  EXPECT_EQ(a.train.size(), kSyntheticTrainImages);
  EXPECT_EQ(a.test.size(), kSyntheticTestImages);
}

// The class whose mean training image is nearest is right for most test images: there is something
// to learn, and it carries over from training to test.
TEST(Synthetic, CanBeLearnt) {
  const Dataset set = OpenDataset("synthetic", {.seed = 1});
  const at::Tensor train = set.train.images.to(at::kFloat).flatten(1);
  const at::Tensor test = set.test.images.to(at::kFloat).flatten(1);
  std::vector<at::Tensor> means;
  for (std::int64_t label = 0; label < set.classes; ++label) {
    means.push_back(train.index({set.train.labels == label}).mean(0));
  }
  const at::Tensor nearest = at::cdist(test, at::stack(means)).argmin(1);
  EXPECT_GT((nearest == set.test.labels).to(at::kFloat).mean().item<double>(), 0.95);
}

TEST(Synthetic, NoPixelTellsTheClass) {
  const Dataset set = OpenDataset("synthetic", {.seed = 1});
  const at::Tensor pixel =
      set.train.images.index({set.train.labels == 0}).select(1, 0).select(1, 5).select(1, 5);
  EXPECT_GT(pixel.to(at::kFloat).std().item<double>(), 20);
}

TEST(CheckLabels, NamesTheFirstThatIsOut) {
  const LabelledImages set{at::zeros({3, 1, 2, 2}, at::kByte), at::tensor({0, 4, 5}, at::kLong)};
  EXPECT_NO_THROW(CheckLabels(set, 6, "file"));
  EXPECT_THAT(MessageOf<DataError>([&] { CheckLabels(set, 4, "file"); }),
              HasSubstr("file: label 4 of image 1"));
}

}  // namespace
}  // namespace ddprun
