// SPDX-License-Identifier: Apache-2.0
// Nodes that are away before their first round: a run of such nodes does not stay for a long lease.
#include <gtest/gtest.h>

#include "rendezvous/base/limits.h"
#include "tests/unit/rendezvous/membership_fixture.h"

namespace ddprun {
namespace {

constexpr std::chrono::milliseconds kLongLease = kLeaseMax;

TEST(DesertedRunTest, ANodeWithoutWorkersIsNotWaitedForAsLong) {
  TestRun run;
  run.Goes(run.Joins("a", {.lease = kLongLease}));
  ASSERT_TRUE(NextDeadline(run.state));
  EXPECT_EQ(*NextDeadline(run.state), run.now + kUnseatedLeaseMax);
  run.TicksAt(run.now + kUnseatedLeaseMax);
  EXPECT_TRUE(IsDrained(run.state));
}

TEST(DesertedRunTest, WhileItIsConnectedItsLeaseCounts) {
  TestRun run;
  run.Joins("a", {.join_timeout = 2 * kLongLease, .lease = kLongLease});
  run.PassesUntil(run.now + kUnseatedLeaseMax);
  EXPECT_EQ(run.state.members.size(), 1u);
  run.PassesUntil(run.now + kLongLease);
  EXPECT_TRUE(run.state.members.empty());
}

TEST(DesertedRunTest, ItComesBackInTime) {
  TestRun run;
  run.Goes(run.Joins("a", {.lease = kLongLease}));
  run.now += kUnseatedLeaseMax / 2;
  run.Joins("a", {.lease = kLongLease, .resume = true});
  run.TicksAt(run.now + kUnseatedLeaseMax);
  EXPECT_EQ(run.state.members.size(), 1u);
  run.Joins("b", {.lease = kLongLease});
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
}

TEST(DesertedRunTest, ANodeWhoseWorkersRunKeepsItsPlace) {
  TestRun run;
  const LinkId a = run.Joins("a", {.lease = kLongLease});
  const LinkId b = run.Joins("b", {.lease = kLongLease});
  run.Goes(a);
  run.Goes(b);
  run.TicksAt(run.now + kUnseatedLeaseMax);
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
  EXPECT_EQ(run.state.members.size(), 2u);
  run.PassesUntil(run.now + kLongLease);
  EXPECT_TRUE(run.state.members.empty());
}

TEST(DesertedRunTest, ALeaseHasALimit) {
  TestRun run;
  const LinkId a = run.Joins("a", {.lease = std::chrono::hours(24)});
  EXPECT_THAT(run.RefusalOf(a), ::testing::HasSubstr("a lease in ms of 86400000"));
}

}  // namespace
}  // namespace ddprun
