// SPDX-License-Identifier: Apache-2.0
#include "worker/library/math/epoch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "rendezvous/base/random.h"
#include "tests/unit/worker/temp_files.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::int64_t> Indices(const EpochPlan& plan) {
  std::vector<std::int64_t> indices;
  for (std::int64_t batch = 0; batch < plan.batches(); ++batch) {
    for (const Sample& sample : plan.Samples(batch)) indices.push_back(sample.index);
  }
  return indices;
}

// The numbers are what PyTorch 2.11 printed for DistributedSampler(range(10), 2, RANK,
// shuffle=True, seed=0) after set_epoch(EPOCH).
TEST(EpochPlan, IsPythonsOrderWhereTheSizesDivide) {
  const auto of = [](int rank, std::uint64_t epoch) {
    return Indices(
        EpochPlan({.size = 10, .shard = {rank, 2}, .batch_size = 5, .seed = 0, .epoch = epoch}));
  };
  EXPECT_THAT(of(0, 0), ElementsAre(4, 7, 3, 0, 6));
  EXPECT_THAT(of(1, 0), ElementsAre(1, 5, 9, 8, 2));
  EXPECT_THAT(of(0, 1), ElementsAre(5, 1, 0, 9, 7));
  EXPECT_THAT(of(1, 1), ElementsAre(6, 2, 8, 3, 4));
}

// ... and the same before what DistributedSampler fills up with: (11, 3 ranks, seed 7, epoch 2).
TEST(EpochPlan, RepeatsNothingWhereTheSizesDoNotDivide) {
  const auto of = [](int rank) {
    return Indices(
        EpochPlan({.size = 11, .shard = {rank, 3}, .batch_size = 4, .seed = 7, .epoch = 2}));
  };
  EXPECT_THAT(of(0), ElementsAre(4, 8, 0, 10));
  EXPECT_THAT(of(1), ElementsAre(9, 3, 1, 6));
  EXPECT_THAT(of(2), ElementsAre(2, 7, 5));
}

TEST(EpochPlan, AShortRestJoinsTheBatchBeforeIt) {
  const auto sizes = [](std::int64_t size, int world, std::int64_t batch_size) {
    const EpochPlan plan({.size = size, .shard = {0, world}, .batch_size = batch_size});
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < plan.batches(); ++i) all.push_back(plan.GlobalSize(i));
    return all;
  };
  EXPECT_THAT(sizes(32, 2, 8), ElementsAre(16, 16));
  EXPECT_THAT(sizes(35, 2, 8), ElementsAre(16, 19));
  EXPECT_THAT(sizes(36, 2, 8), ElementsAre(16, 16, 4));
  EXPECT_THAT(sizes(5, 2, 1), ElementsAre(2, 3));
  EXPECT_THAT(sizes(3, 2, 8), ElementsAre(3));
  EXPECT_THAT(sizes(60'001, 2, 64).back(), 60'001 % 128);
}

TEST(EpochPlan, AResumedEpochMayLeaveARankWithoutASample) {
  for (int rank = 0; rank < 4; ++rank) {
    const EpochPlan plan({.size = 10, .shard = {rank, 4}, .batch_size = 2, .consumed = 7});
    ASSERT_EQ(plan.batches(), 1);
    EXPECT_EQ(plan.GlobalSize(0), 3);
    EXPECT_EQ(plan.Samples(0).size(), rank < 3 ? 1u : 0u);
    EXPECT_EQ(plan.First(0).position, 7);
  }
}

TEST(EpochPlan, NothingIsLeftAfterTheLastSample) {
  EXPECT_EQ(EpochPlan({.size = 10, .shard = {1, 2}, .batch_size = 2, .consumed = 10}).batches(), 0);
}

TEST(EpochPlan, BadOptionsAreAnsweredWithASentence) {
  const auto message = [](const EpochPlan::Options& options) {
    return MessageOf<std::invalid_argument>([&] { EpochPlan plan(options); });
  };
  EXPECT_THAT(
      message({.size = 3, .shard = {0, 4}}),
      AllOf(HasSubstr("3 samples"), HasSubstr("4 ranks"), HasSubstr("start no more ranks")));
  EXPECT_THAT(message({.size = 10, .consumed = 11}), HasSubstr("resumed after 11"));
  EXPECT_THAT(message({.size = 10, .batch_size = 0}), HasSubstr("--batch-size"));
}

std::int64_t Between(SplitMix64& random, std::int64_t least, std::int64_t most) {
  return least + random.Below(static_cast<std::uint32_t>(most - least + 1));
}

// One epoch of `size` samples, interrupted after some batch again and again, each time resumed with
// another number of ranks and another batch size.
void RunInterrupted(std::uint64_t seed) {
  SplitMix64 random({seed, 1});
  const std::int64_t size = Between(random, 1, 400);
  std::vector<int> seen(static_cast<std::size_t>(size), 0);
  const auto order = EpochOrder(size, seed, 3);
  std::int64_t consumed = 0;
  while (consumed < size) {
    const auto world = static_cast<int>(Between(random, 1, std::min<std::int64_t>(size, 9)));
    const std::int64_t batch_size = Between(random, 1, 20);
    const auto plan_of = [&](int rank) {
      return EpochPlan({.size = size,
                        .shard = {rank, world},
                        .batch_size = batch_size,
                        .seed = seed,
                        .epoch = 3,
                        .consumed = consumed});
    };
    const std::int64_t batches = plan_of(0).batches();
    ASSERT_GT(batches, 0);
    if (consumed == 0) {
      ASSERT_EQ(batches, EpochPlan::BatchesOf(size, world, batch_size));
    }
    const std::int64_t stop = Between(random, 1, batches);
    std::int64_t after = consumed;
    for (std::int64_t batch = 0; batch < stop; ++batch) {
      std::int64_t total = 0;
      std::int64_t least = size;
      std::int64_t most = 0;
      for (int rank = 0; rank < world; ++rank) {
        const EpochPlan plan = plan_of(rank);
        ASSERT_EQ(plan.batches(), batches);
        const auto samples = plan.Samples(batch);
        for (const Sample& sample : samples) {
          ++seen[static_cast<std::size_t>(sample.index)];
          ASSERT_EQ(order[sample.position].item<std::int64_t>(), sample.index);
        }
        const auto count = static_cast<std::int64_t>(samples.size());
        total += count;
        least = std::min(least, count);
        most = std::max(most, count);
        if (rank == 0) {
          after += plan.GlobalSize(batch);
          ASSERT_EQ(plan.ConsumedAfter(batch), after);
          ASSERT_EQ(plan.First(batch).position, samples.front().position);
        }
      }
      ASSERT_EQ(total, plan_of(0).GlobalSize(batch));
      ASSERT_LE(most - least, 1);
      if (batches > 1) {
        ASSERT_GE(least, std::min<std::int64_t>(batch_size, 2));
      }
      if (batch + 1 < batches) {
        ASSERT_EQ(least, batch_size);
      }
      ASSERT_LE(most, batch_size + 2);
    }
    consumed = after;
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), size) << "seed " << seed;
}

TEST(EpochPlan, EverySampleIsSeenExactlyOnceWhateverInterrupts) {
  for (std::uint64_t seed = 0; seed < 300 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RunInterrupted(seed);
  }
}

TEST(EpochPlan, KnowsTheSizesWithoutTheSamples) {
  for (const std::int64_t size : {7, 16, 33, 100}) {
    for (const int ranks : {1, 2, 3}) {
      for (const std::int64_t consumed : {std::int64_t{0}, size / 2, size - 1}) {
        for (int rank = 0; rank < ranks; ++rank) {
          const EpochPlan plan(
              {.size = size, .shard = {rank, ranks}, .batch_size = 4, .consumed = consumed});
          std::int64_t own = 0;
          for (std::int64_t batch = 0; batch < plan.batches(); ++batch) {
            const auto samples = static_cast<std::int64_t>(plan.Samples(batch).size());
            EXPECT_EQ(plan.OwnSize(batch), samples);
            own += std::max<std::int64_t>(samples, 1);
          }
          EXPECT_LE(own, plan.OwnLimit());
        }
      }
    }
  }
}

}  // namespace
}  // namespace ddprun
