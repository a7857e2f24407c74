// SPDX-License-Identifier: Apache-2.0
#include "worker/loader.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace ddprun {
namespace {

// Image i is all of byte i, and its label is i % 10.
LabelledImages Numbered(std::int64_t count) {
  return {at::arange(count, at::kByte).view({count, 1, 1, 1}).expand({count, 1, 8, 8}).contiguous(),
          at::arange(count, at::kLong) % 10};
}

class LoaderTest : public ::testing::Test {
 protected:
  std::vector<Batch> All(const std::vector<std::int64_t>& indices, LoaderOptions options) {
    Loader loader(writer_, set_.labels, indices, options);
    std::vector<Batch> batches;
    while (auto batch = loader.Next()) batches.push_back(std::move(*batch));
    return batches;
  }

  const LabelledImages set_ = Numbered(100);
  const BatchWriter writer_{set_, 3, {0, 0, 0}, {1, 1, 1}};
};

TEST_F(LoaderTest, GivesTheIndicesInOrderAndAShortLastBatch) {
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < 50; ++i) indices.push_back((i * 37) % 100);
  const auto batches = All(indices, {.batch_size = 16});
  ASSERT_EQ(batches.size(), 4u);
  EXPECT_EQ(batches[3].labels.size(0), 2);
  std::size_t position = 0;
  for (const auto& batch : batches) {
    for (std::int64_t i = 0; i < batch.labels.size(0); ++i, ++position) {
      EXPECT_EQ(std::lround(batch.images[i][2][4][4].item<double>() * 255), indices[position]);
      EXPECT_EQ(batch.labels[i].item<std::int64_t>(), indices[position] % 10);
    }
  }
  EXPECT_EQ(position, indices.size());
}

TEST_F(LoaderTest, EndsAtOnceWithoutIndices) { EXPECT_TRUE(All({}, {.batch_size = 4}).empty()); }

TEST_F(LoaderTest, StaysAtTheEnd) {
  Loader loader(writer_, set_.labels, {1}, {.batch_size = 4});
  EXPECT_TRUE(loader.Next().has_value());
  EXPECT_FALSE(loader.Next().has_value());
  EXPECT_FALSE(loader.Next().has_value());
}

TEST_F(LoaderTest, MayBeLeftInTheMiddle) {
  Loader loader(writer_, set_.labels, std::vector<std::int64_t>(10'000, 7), {.batch_size = 1});
  EXPECT_TRUE(loader.Next().has_value());
}

TEST_F(LoaderTest, AugmentsTheSameWayEachTimeAndAnotherInTheNextEpoch) {
  const std::vector<std::int64_t> indices(32, 99);
  LoaderOptions options{.batch_size = 32, .augment = true, .seed = 4, .epoch = 1, .rank = 1};
  const at::Tensor first = All(indices, options)[0].images;
  EXPECT_TRUE(first.equal(All(indices, options)[0].images));
  options.epoch = 2;
  EXPECT_FALSE(first.equal(All(indices, options)[0].images));
  options.epoch = 1;
  options.rank = 0;
  EXPECT_FALSE(first.equal(All(indices, options)[0].images));
}

TEST_F(LoaderTest, BatchSizeDoesNotChangeTheAugmentation) {
  const std::vector<std::int64_t> indices(32, 99);
  const auto whole = All(indices, {.batch_size = 32, .augment = true});
  const auto halves = All(indices, {.batch_size = 16, .augment = true});
  EXPECT_TRUE(whole[0].images.equal(at::cat({halves[0].images, halves[1].images})));
}

TEST_F(LoaderTest, ChannelsLastBatchesHaveThatLayout) {
  const auto batch = All({1, 2, 3}, {.batch_size = 3, .channels_last = true})[0];
  EXPECT_TRUE(batch.images.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(batch.images.equal(All({1, 2, 3}, {.batch_size = 3})[0].images));
}

}  // namespace
}  // namespace ddprun
