// SPDX-License-Identifier: Apache-2.0
// Test images that lie on the device are those that the loader gives, shard by shard and pass by
// pass. The device is the CPU here.
#include "worker/train/evaluation/test_feed.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <utility>
#include <vector>

namespace ddprun {
namespace {

constexpr std::int64_t kTestImages = 23;

Dataset MadeUp() {
  torch::manual_seed(3);
  std::vector<LabelledImages> parts = {{at::randint(256, {kTestImages, 3, 9, 7}, at::kByte),
                                        at::randint(10, {kTestImages}, at::kLong)}};
  Dataset data;
  data.train = data.test = std::make_shared<FixedSizeImages>(
      std::move(parts),
      FixedSizeImages::Options{
          .shape = {3, 9, 7}, .mean = {0.4f, 0.5f, 0.6f}, .std = {0.2f, 0.25f, 0.3f}});
  return data;
}

const FixedSizeImages& TestSet(const Dataset& data) {
  return dynamic_cast<const FixedSizeImages&>(*data.test);
}

void ExpectAlike(TestFeed& resident, TestFeed& loaded, bool channels_last) {
  resident.Begin();
  loaded.Begin();
  std::int64_t images = 0;
  while (const auto expected = loaded.Next()) {
    const auto batch = resident.Next();
    ASSERT_TRUE(batch);
    EXPECT_TRUE(batch->images.equal(expected->images));
    EXPECT_TRUE(batch->labels.equal(expected->labels));
    EXPECT_EQ(batch->images.strides(), expected->images.strides()) << channels_last;
    images += batch->labels.size(0);
  }
  EXPECT_FALSE(resident.Next());
  EXPECT_GT(images, 0);
}

TEST(TestFeed, ResidentImagesAreTheLoaders) {
  const Dataset data = MadeUp();
  for (const bool channels_last : {true, false}) {
    Config config;
    config.channels_last = channels_last;
    config.eval_batch_size = 5;
    config.augment = true;  // of training images alone
    for (int rank = 0; rank < 2; ++rank) {
      const Shard shard{.rank = rank, .world_size = 2};
      ResidentTestFeed resident(config, TestSet(data), shard, at::kCPU);
      LoaderTestFeed loaded(config, data, shard, at::kCPU);
      EXPECT_EQ(resident.size(), kTestImages);
      ExpectAlike(resident, loaded, channels_last);
      ExpectAlike(resident, loaded, channels_last);  // the next evaluation
    }
  }
}

TEST(TestFeed, GivesTheTypeOfTheFirstLayer) {
  const Dataset data = MadeUp();
  const Config config;
  ResidentTestFeed floats(config, TestSet(data), {}, at::kCPU);
  ResidentTestFeed halves(config, TestSet(data), {}, at::kCPU, at::kHalf);
  floats.Begin();
  halves.Begin();
  EXPECT_TRUE(halves.Next()->images.equal(floats.Next()->images.to(at::kHalf)));
}

TEST(TestFeed, TakesHalfOfTheFreeMemoryAtMost) {
  const Dataset data = MadeUp();
  const std::int64_t bytes = kTestImages * (3 * 9 * 7 + 8);
  EXPECT_TRUE(ResidentTestFeed::Fits(TestSet(data), 2 * bytes));
  EXPECT_FALSE(ResidentTestFeed::Fits(TestSet(data), 2 * bytes - 1));
}

}  // namespace
}  // namespace ddprun
