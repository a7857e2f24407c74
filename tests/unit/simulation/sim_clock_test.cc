// SPDX-License-Identifier: Apache-2.0
// Simulated time and its random numbers: the same each time, in the order that was asked for.
#include "tests/simulation/sim_clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/simulation/sim_random.h"

namespace ddprun {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SimClockTest : public ::testing::Test {
 protected:
  SimClock::Action Says(const std::string& what) {
    return [this, what] { said.push_back(what); };
  }
  SimClock clock;
  const TimePoint start = clock.now();
  std::vector<std::string> said;
};

TEST_F(SimClockTest, WhatIsDueHappensInTheOrderOfItsTimeAndThenOfAsking) {
  clock.After(seconds(2), Says("late"));
  clock.After(seconds(1), Says("a"));
  clock.After(seconds(1), Says("b"));
  clock.At(start - seconds(5), Says("past"));
  EXPECT_TRUE(clock.RunNext());
  EXPECT_THAT(said, ElementsAre("past"));
  EXPECT_EQ(clock.now(), start);
  clock.RunUntil(start + seconds(1));
  EXPECT_THAT(said, ElementsAre("past", "a", "b"));
  EXPECT_EQ(clock.now(), start + seconds(1));
  clock.RunFor(seconds(10));
  EXPECT_THAT(said, ElementsAre("past", "a", "b", "late"));
  EXPECT_EQ(clock.now(), start + seconds(11));
  EXPECT_FALSE(clock.RunNext());
  EXPECT_EQ(clock.events_run(), 4u);
}

TEST_F(SimClockTest, WhatHappensMayAskForMore) {
  clock.After(seconds(1), [&] {
    clock.After(seconds(0), Says("now"));
    clock.After(seconds(1), Says("next"));
  });
  clock.RunFor(seconds(2));
  EXPECT_THAT(said, ElementsAre("now", "next"));
}

TEST_F(SimClockTest, WhatIsCancelledDoesNotHappen) {
  const SimClock::Event one = clock.After(seconds(1), Says("one"));
  const SimClock::Event two = clock.After(seconds(2), Says("two"));
  clock.After(seconds(5), Says("five"));
  clock.Cancel(one);
  clock.Cancel(one);
  clock.RunUntil(start + seconds(1));
  // The place of the cancelled one may be another's now.
  clock.After(seconds(1), Says("other"));
  clock.Cancel(one);
  clock.Cancel(SimClock::Event());
  clock.RunUntil(start + seconds(4));
  EXPECT_THAT(said, ElementsAre("two", "other"));
  clock.Cancel(two);
}

TEST_F(SimClockTest, AGroupsEventsAreCancelledTogether) {
  const SimGroup group = clock.NewGroup();
  clock.After(seconds(1), Says("before"), group);
  clock.After(seconds(1), Says("of nobody"));
  clock.CancelAll(group);
  clock.After(seconds(2), Says("after"), group);
  clock.RunFor(seconds(3));
  EXPECT_THAT(said, ElementsAre("of nobody", "after"));
}

TEST_F(SimClockTest, AStoppedGroupsEventsWaitInTheirOrder) {
  const SimGroup group = clock.NewGroup();
  const SimClock::Event third = clock.After(seconds(3), Says("3"), group);
  clock.After(seconds(1), Says("1"), group);
  clock.After(seconds(2), Says("2"), group);
  clock.After(seconds(10), Says("10"), group);
  clock.Stop(group);
  clock.RunFor(seconds(5));
  EXPECT_THAT(said, IsEmpty());
  clock.Continue(group);
  clock.Cancel(third);
  clock.RunFor(seconds(0));
  EXPECT_THAT(said, ElementsAre("1", "2"));
  clock.RunFor(seconds(5));
  EXPECT_THAT(said, ElementsAre("1", "2", "10"));
  clock.After(seconds(1), Says("never"), group);
  clock.Stop(group);
  clock.RunFor(seconds(2));
  clock.CancelAll(group);
  clock.RunFor(seconds(2));
  EXPECT_EQ(said.size(), 3u);
}

TEST(SimRandomTest, TheSameEverywhere) {
  // SplitMix64's own test vector for the seed 1234567.
  SimRandom random(1234567);
  EXPECT_EQ(random.Next(), 6457827717110365317u);
  EXPECT_EQ(random.Next(), 3203168211198807973u);
  EXPECT_EQ(random.Next(), 9817491932198370423u);
}

TEST(SimRandomTest, StaysWithinItsLimitsAndReachesThem) {
  SimRandom random(1);
  int counts[5] = {};
  int hits = 0;
  bool least = false;
  bool most = false;
  for (int i = 0; i < 10'000; ++i) {
    ++counts[random.Below(5)];
    hits += random.Chance(0.25) ? 1 : 0;
    const Duration between = random.Between(Duration(3), Duration(6));
    ASSERT_GE(between, Duration(3));
    ASSERT_LE(between, Duration(6));
    least = least || between == Duration(3);
    most = most || between == Duration(6);
  }
  for (const int count : counts) EXPECT_NEAR(count, 2000, 200);
  EXPECT_NEAR(hits, 2500, 250);
  EXPECT_TRUE(least);
  EXPECT_TRUE(most);
  EXPECT_EQ(random.Between(Duration(7), Duration(7)), Duration(7));
  EXPECT_FALSE(random.Chance(0));
  EXPECT_TRUE(random.Chance(1));
}

TEST(SimRandomTest, AForkDoesNotChangeWithWhatIsDrawnElsewhere) {
  SimRandom a(9);
  SimRandom fork_a = a.Fork();
  SimRandom b(9);
  SimRandom fork_b = b.Fork();
  b.Next();
  EXPECT_EQ(fork_a.Next(), fork_b.Next());
  EXPECT_NE(a.Next(), fork_a.Next());
}

}  // namespace
}  // namespace ddprun
