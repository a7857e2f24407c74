// SPDX-License-Identifier: Apache-2.0
#include "worker/train/data/sample_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// `counts` samples of the labels 0, 1 and so on.
std::vector<SplitSample> Samples(const std::vector<int>& counts) {
  std::vector<SplitSample> samples;
  for (std::size_t label = 0; label < counts.size(); ++label) {
    for (int i = 0; i < counts[label]; ++i)
      samples.push_back({.label = static_cast<std::int64_t>(label),
                         .name = std::to_string(label) + "/" + std::to_string(i) + ".png"});
  }
  return samples;
}

std::set<std::string> TestNames(const std::vector<SplitSample>& samples, std::uint64_t seed) {
  std::set<std::string> names;
  for (const std::int64_t i : SplitSamples(samples, 0.2, seed).test)
    names.insert(samples[static_cast<std::size_t>(i)].name);
  return names;
}

TEST(SplitSamples, SetsAsideTheShareOfEachLabelAndEachSampleOnce) {
  const auto samples = Samples({100, 1000, 7});
  const SampleSplit split = SplitSamples(samples, 0.1, /*seed=*/3);
  std::map<std::int64_t, int> tested;
  for (const std::int64_t i : split.test) ++tested[samples[static_cast<std::size_t>(i)].label];
  EXPECT_EQ(tested, (std::map<std::int64_t, int>{{0, 10}, {1, 100}, {2, 1}}));
  std::vector<std::int64_t> all = split.train;
  all.insert(all.end(), split.test.begin(), split.test.end());
  std::sort(all.begin(), all.end());
  ASSERT_THAT(all, SizeIs(samples.size()));
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<std::int64_t>(i));
  EXPECT_TRUE(std::is_sorted(split.train.begin(), split.train.end()));
}

TEST(SplitSamples, ALabelIsNeverWithoutTrainingSamples) {
  EXPECT_THAT(SplitSamples(Samples({1}), 0.9, 0).test, IsEmpty());
  const SampleSplit two = SplitSamples(Samples({2}), 0.99, 0);
  EXPECT_THAT(two.test, SizeIs(1));
  EXPECT_THAT(two.train, SizeIs(1));
  EXPECT_THAT(SplitSamples(Samples({2}), 0.01, 0).test, SizeIs(1));
}

TEST(SplitSamples, DependsOnTheSeedAndOnNamesNotOnTheirOrder) {
  auto samples = Samples({200, 200});
  const auto names = TestNames(samples, 1);
  EXPECT_NE(TestNames(samples, 2), names);
  std::reverse(samples.begin(), samples.end());
  EXPECT_EQ(TestNames(samples, 1), names);
}

// An evaluation months later must not test on what was trained on.
TEST(SplitSamples, AddedSamplesMoveNoTrainingSampleButAtTheBoundary) {
  const auto before = TestNames(Samples({200}), 1);
  const auto after = TestNames(Samples({205}), 1);
  std::vector<std::string> moved;
  std::set_difference(before.begin(), before.end(), after.begin(), after.end(),
                      std::back_inserter(moved));
  EXPECT_LE(moved.size(), 5u);
  EXPECT_THAT(before, SizeIs(40));
  EXPECT_THAT(after, SizeIs(41));
}

// A checkpoint's split must be found by later versions.
TEST(SplitSamples, IsTheSameInEachVersion) {
  EXPECT_THAT(SplitSamples(Samples({10, 10}), 0.2, 0).test, ElementsAre(0, 8, 10, 12));
}

}  // namespace
}  // namespace ddprun
