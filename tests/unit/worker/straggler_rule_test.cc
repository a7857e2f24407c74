// SPDX-License-Identifier: Apache-2.0
#include "worker/metrics/straggler_rule.h"

#include <gtest/gtest.h>

#include <random>

namespace ddprun {
namespace {

using std::chrono::microseconds;

// The ranks of a training as they exchange their fastest steps: what is read is as old as the
// exchange before.
class Ranks {
 public:
  Ranks(std::size_t count, double factor) : fastest_(count), rule_(factor) {}

  void Step(const std::vector<int>& times) {
    for (std::size_t i = 0; i < times.size(); ++i) fastest_[i].Add(microseconds(times[i]));
    if (++step_ < next_) return;
    if (!sent_.empty()) rule_.Take(sent_);
    next_ = step_ + rule_.exchange_steps();
    sent_.clear();
    for (const FastestStep& one : fastest_) sent_.push_back(one.Get());
  }

  const std::optional<Straggler>& slow() const { return rule_.slow(); }

 private:
  std::vector<FastestStep> fastest_;
  StragglerRule rule_;
  std::vector<std::int64_t> sent_;
  std::int64_t step_ = 0;
  std::int64_t next_ = 0;
};

TEST(StragglerRule, ARankOfHalfTheSpeedIsNamedWithin20Steps) {
  for (int offset = 0; offset < 18; ++offset) {
    Ranks ranks(4, 1.5);
    for (int i = 0; i < 40 + offset; ++i) {
      ranks.Step({20'000, 20'100, 19'900, 20'000});
      ASSERT_EQ(ranks.slow(), std::nullopt);
    }
    int steps = 0;
    while (!ranks.slow()) {
      ranks.Step({20'000, 20'100, 39'600, 20'000});
      ASSERT_LE(++steps, 20) << offset;
    }
    EXPECT_EQ(ranks.slow()->rank, 2);
    EXPECT_NEAR(ranks.slow()->factor, 1.98, 1e-9);
    for (int i = 0; i < 8; ++i) ranks.Step({20'000, 20'000, 20'000, 20'000});
    EXPECT_EQ(ranks.slow(), std::nullopt) << "it has made a fast step";
  }
}

TEST(StragglerRule, OneFastStepOfSixteenIsEnough) {
  Ranks ranks(2, 1.5);
  std::mt19937 random(3);
  for (int i = 0; i < 5000; ++i) {
    const bool fast = i % static_cast<int>(FastestStep::kSteps) == 0;
    const int noise = 10'000 + static_cast<int>(random() % 50'000);
    ranks.Step({10'000, fast ? 10'500 : noise});
    ASSERT_EQ(ranks.slow(), std::nullopt) << i;
  }
}

TEST(FastestStep, OfAnInterruptedRankMoreStepsAreNeeded) {
  using std::chrono::microseconds;
  FastestStep fastest;
  const auto add = [&](int count, microseconds own, bool interrupted) {
    for (int i = 0; i < count; ++i) fastest.Add(own, interrupted);
  };
  add(15, microseconds(50), false);
  add(1, microseconds(40), true);
  EXPECT_EQ(fastest.Get(), 0);
  add(112, microseconds(90), true);
  EXPECT_EQ(fastest.Get(), 40);
  add(15, microseconds(60), false);
  EXPECT_EQ(fastest.Get(), 40);
  add(1, microseconds(60), false);
  EXPECT_EQ(fastest.Get(), 60);
  add(1, microseconds(90), true);
  EXPECT_EQ(fastest.Get(), 60) << "the first of the 128 steps is long gone";
}

TEST(StragglerRule, ExchangesOfShortStepsAreRarer) {
  StragglerRule rule(1.5);
  EXPECT_EQ(rule.exchange_steps(), 2);
  rule.Take({0, 0});
  EXPECT_EQ(rule.exchange_steps(), 2);
  rule.Take({4'000, 5'000});
  EXPECT_EQ(rule.exchange_steps(), 8);
  rule.Take({10, 20});
  EXPECT_EQ(rule.exchange_steps(), 64);
  rule.Take({4'000, 500'000});
  EXPECT_EQ(rule.exchange_steps(), 2);
}

TEST(StragglerRule, OfTwoTheSlowerIsNamed) {
  StragglerRule rule(1.5);
  rule.Take({20'000, 10'000});
  EXPECT_EQ(rule.slow(), (Straggler{0, 2}));
}

TEST(StragglerRule, ItIsSlowUntilItIsClearlyFaster) {
  StragglerRule rule(1.5);
  rule.Take({14'900, 10'000});
  EXPECT_EQ(rule.slow(), std::nullopt);
  rule.Take({15'100, 10'000});
  EXPECT_TRUE(rule.slow());
  rule.Take({12'500, 10'000});
  EXPECT_EQ(rule.slow(), (Straggler{0, 1.25}));
  rule.Take({11'900, 10'000});
  EXPECT_EQ(rule.slow(), std::nullopt);
  rule.Take({12'500, 10'000});
  EXPECT_EQ(rule.slow(), std::nullopt);
}

TEST(StragglerRule, WhatIsNotKnownOrTooShortSaysNothing) {
  StragglerRule rule(1.5);
  for (const std::vector<std::int64_t>& fastest :
       {std::vector<std::int64_t>{}, {20'000}, {0, 20'000}, {900, 100}}) {
    rule.Take(fastest);
    EXPECT_EQ(rule.slow(), std::nullopt);
  }
  rule.Take({0, 20'000, 10'000});
  EXPECT_EQ(rule.slow(), (Straggler{1, 2}));
  StragglerRule off(0);
  off.Take({100'000, 10'000});
  EXPECT_EQ(off.slow(), std::nullopt);
}

}  // namespace
}  // namespace ddprun
