// SPDX-License-Identifier: Apache-2.0
#include "proto/rank_time.h"

#include <gtest/gtest.h>

#include <random>

namespace ddprun {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

TEST(RankTimeTest, TheTextNamesTheGreatestFirst) {
  RankTime time;
  EXPECT_EQ(GoodputText(time), "");
  time[TimeClass::kTraining] = seconds(930);
  EXPECT_EQ(GoodputText(time), "100.0 % of 930 rank-seconds: training");
  time[TimeClass::kStart] = seconds(20);
  time[TimeClass::kRecovery] = seconds(50);
  time[TimeClass::kData] = microseconds(100);
  EXPECT_EQ(GoodputText(time),
            "93.0 % of 1000 rank-seconds: training; recovery 5.0 %, start 2.0 %");
}

TEST(RankTimeTest, WhatIsDividedIsNeitherMoreNorLess) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 10'000; ++i) {
    RankTime shares;
    for (auto& share : shares.times) {
      if (random() % 3 != 0) share = microseconds(random() % 1'000'000'000);
    }
    const microseconds whole(random() % 10'000'000'000);
    const RankTime parts = Divide(whole, shares, TimeClass::kWaiting);
    ASSERT_EQ(parts.Sum(), whole);
    for (const auto part : parts.times) ASSERT_GE(part.count(), 0);
  }
  EXPECT_EQ(Divide(seconds(3), {}, TimeClass::kStart)[TimeClass::kStart], seconds(3));
}

TEST(RankTimeTest, SumsAreLimited) {
  RankTime time;
  time[TimeClass::kData] = RankTime::kMax;
  RankTime sum = time;
  for (int i = 0; i < 20'000; ++i) sum += time;
  EXPECT_EQ(sum, time);
}

}  // namespace
}  // namespace ddprun
