// SPDX-License-Identifier: Apache-2.0
#include "worker/train/metrics/straggler_rule.h"

#include <gtest/gtest.h>

#include <random>

namespace ddprun {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Ranks whose recent and lasting steps are alike.
std::vector<FastestSteps> Alike(const std::vector<std::int64_t>& times) {
  std::vector<FastestSteps> all;
  for (const std::int64_t time : times) all.push_back({.recent = time, .lasting = time});
  return all;
}

// The ranks of a training as they exchange their fastest steps: what is read is as old as the
// exchange before.
class Ranks {
 public:
  Ranks(std::size_t count, double factor) : steps_(count), rule_(factor) {}

  void Step(const std::vector<int>& times) {
    for (std::size_t i = 0; i < times.size(); ++i)
      steps_[i].Add(microseconds(times[i]), microseconds(0));
    if (++step_ < next_) return;
    if (!sent_.empty()) rule_.Take(sent_);
    next_ = step_ + rule_.exchange_steps();
    sent_.clear();
    for (const OwnSteps& one : steps_) sent_.push_back(one.Fastest());
  }

  const std::optional<Straggler>& slow() const { return rule_.slow(); }

 private:
  std::vector<OwnSteps> steps_;
  StragglerRule rule_;
  std::vector<FastestSteps> sent_;
  std::int64_t step_ = 0;
  std::int64_t next_ = 0;
};

TEST(StragglerRule, ARankOfHalfTheSpeedIsNamedWithin18Steps) {
  for (int offset = 0; offset < 18; ++offset) {
    Ranks ranks(4, 1.5);
    for (int i = 0; i < 40 + offset; ++i) {
      ranks.Step({80'000, 80'100, 79'900, 80'000});
      ASSERT_EQ(ranks.slow(), std::nullopt);
    }
    int steps = 0;
    while (!ranks.slow()) {
      ranks.Step({80'000, 80'100, 158'400, 80'000});
      ASSERT_LE(++steps, 18) << offset;
    }
    EXPECT_EQ(ranks.slow()->rank, 2);
    EXPECT_NEAR(ranks.slow()->factor, 1.98, 1e-9);
    for (int i = 0; i < 8; ++i) ranks.Step({80'000, 80'000, 80'000, 80'000});
    EXPECT_EQ(ranks.slow(), std::nullopt) << "it has made a fast step";
  }
}

TEST(StragglerRule, OneFastStepOfTheWindowIsEnough) {
  Ranks ranks(2, 1.5);
  std::mt19937 random(3);
  for (int i = 0; i < 5000; ++i) {
    const bool fast = i % static_cast<int>(OwnSteps::kSteps) == 0;
    const int noise = 10'000 + static_cast<int>(random() % 50'000);
    ranks.Step({10'000, fast ? 10'500 : noise});
    ASSERT_EQ(ranks.slow(), std::nullopt) << i;
  }
}

class StepsOfARank : public testing::Test {
 protected:
  void Add(int count, int own, int waited = 0) {
    for (int i = 0; i < count; ++i) steps_.Add(milliseconds(own), milliseconds(waited));
  }
  std::int64_t Recent() const { return steps_.Fastest().recent / 1000; }
  std::int64_t Lasting() const { return steps_.Fastest().lasting / 1000; }

  OwnSteps steps_;
};

TEST_F(StepsOfARank, AreOf14) {
  Add(1, 100);
  Add(12, 500);
  EXPECT_EQ(Recent(), 0);
  Add(1, 500);
  EXPECT_EQ(Recent(), 100);
  Add(1, 500);
  EXPECT_EQ(Recent(), 500);
}

TEST_F(StepsOfARank, AreOfASecond) {
  Add(1, 10);
  Add(49, 20);
  EXPECT_EQ(Recent(), 0);
  Add(1, 15);
  EXPECT_EQ(Recent(), 10);
  Add(1, 20);
  EXPECT_EQ(Recent(), 15);
}

TEST_F(StepsOfARank, AreOf128IfNoMoreAreKept) {
  Add(127, 1);
  EXPECT_EQ(Recent(), 0);
  EXPECT_EQ(Lasting(), 0);
  Add(1, 2);
  EXPECT_EQ(Recent(), 1);
  EXPECT_EQ(Lasting(), 1);
  Add(127, 2);
  EXPECT_EQ(Recent(), 2);
  EXPECT_EQ(Lasting(), 2);
}

TEST_F(StepsOfARank, AreOfMoreWhereTheRankWaitsForACpu) {
  Add(1, 90, 0);
  Add(99, 100, 50);
  EXPECT_EQ(Recent(), 0);
  Add(28, 100, 50);
  EXPECT_EQ(Recent(), 90);
  Add(14, 110, 0);
  EXPECT_EQ(Recent(), 110);
  Add(5, 120, 60);
  EXPECT_EQ(Recent(), 110) << "of 19 steps 14 waited for nothing, and 5 for half of their time";
}

TEST(StragglerRule, ExchangesOfShortStepsAreRarer) {
  StragglerRule rule(1.5);
  EXPECT_EQ(rule.exchange_steps(), 2);
  rule.Take(Alike({0, 0}));
  EXPECT_EQ(rule.exchange_steps(), 2);
  rule.Take(Alike({4'000, 5'000}));
  EXPECT_EQ(rule.exchange_steps(), 8);
  rule.Take(Alike({10, 20}));
  EXPECT_EQ(rule.exchange_steps(), 64);
  rule.Take(Alike({4'000, 500'000}));
  EXPECT_EQ(rule.exchange_steps(), 2);
}

TEST(StragglerRule, OfTwoTheSlowerIsNamed) {
  StragglerRule rule(1.5);
  rule.Take(Alike({20'000, 10'000}));
  EXPECT_EQ(rule.slow(), (Straggler{0, 2}));
}

TEST(StragglerRule, ASmallDifferenceCountsIfItLasts) {
  StragglerRule rule(1.5);
  rule.Take({{.recent = 17'900, .lasting = 10'000}, {.recent = 10'000, .lasting = 10'000}});
  EXPECT_EQ(rule.slow(), std::nullopt);
  rule.Take({{.recent = 18'100, .lasting = 10'000}, {.recent = 10'000, .lasting = 10'000}});
  EXPECT_EQ(rule.slow(), (Straggler{0, 1.81}));
  rule.Take(Alike({10'000, 10'000}));
  EXPECT_EQ(rule.slow(), std::nullopt);
  rule.Take({{.recent = 12'500, .lasting = 15'000}, {.recent = 10'000, .lasting = 10'000}});
  EXPECT_EQ(rule.slow(), (Straggler{0, 1.25}));
}

TEST(StragglerRule, WhatHasLastedAndIsOverNamesNobody) {
  StragglerRule rule(1.5);
  rule.Take({{.recent = 11'900, .lasting = 20'000}, {.recent = 10'000, .lasting = 10'000}});
  EXPECT_EQ(rule.slow(), std::nullopt);
  rule.Take({{.recent = 10'000, .lasting = 20'000}, {.recent = 13'000, .lasting = 10'000}});
  EXPECT_EQ(rule.slow(), std::nullopt);
}

TEST(StragglerRule, ItIsSlowUntilItIsClearlyFaster) {
  StragglerRule rule(1.5);
  rule.Take(Alike({14'900, 10'000}));
  EXPECT_EQ(rule.slow(), std::nullopt);
  rule.Take(Alike({15'100, 10'000}));
  EXPECT_TRUE(rule.slow());
  rule.Take(Alike({12'500, 10'000}));
  EXPECT_EQ(rule.slow(), (Straggler{0, 1.25}));
  rule.Take(Alike({11'900, 10'000}));
  EXPECT_EQ(rule.slow(), std::nullopt);
  rule.Take(Alike({12'500, 10'000}));
  EXPECT_EQ(rule.slow(), std::nullopt);
}

TEST(StragglerRule, WhatIsNotKnownOrTooShortSaysNothing) {
  StragglerRule rule(1.5);
  for (const std::vector<std::int64_t>& fastest :
       {std::vector<std::int64_t>{}, {20'000}, {0, 20'000}, {900, 100}}) {
    rule.Take(Alike(fastest));
    EXPECT_EQ(rule.slow(), std::nullopt);
  }
  rule.Take(Alike({0, 20'000, 10'000}));
  EXPECT_EQ(rule.slow(), (Straggler{1, 2}));
  StragglerRule off(0);
  off.Take(Alike({100'000, 10'000}));
  EXPECT_EQ(off.slow(), std::nullopt);
}

}  // namespace
}  // namespace ddprun
