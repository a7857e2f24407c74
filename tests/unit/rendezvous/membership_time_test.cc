// SPDX-License-Identifier: Apache-2.0
// What the service counts of the ranks' time, as nodes report it.
#include <gtest/gtest.h>

#include "tests/unit/rendezvous/membership_fixture.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr RoundId kFirst{1};
constexpr RoundId kSecond{2};

RankTime Time(seconds training, seconds recovery = seconds(0)) {
  RankTime time;
  time[TimeClass::kTraining] = training;
  time[TimeClass::kRecovery] = recovery;
  return time;
}

class TimeTest : public ::testing::Test {
 protected:
  TimeTest() {
    a = run.Joins("a", options);
    b = run.Joins("b", options);
  }

  TestRun run;
  JoinOptions options{.restarts = 1, .local_world_size = 2, .lease = seconds(10)};
  LinkId a{}, b{};
};

TEST_F(TimeTest, TheVerdictHasThatOfAllNodes) {
  run.Reports(a, Heartbeat{.time = Time(seconds(5))});
  EXPECT_EQ(TimeOf(run.state), Time(seconds(5)));
  run.Reports(a, Heartbeat{});  // of an agent that counts nothing
  run.Reports(b, NodeSucceeded{kFirst, Time(seconds(9), seconds(1))});
  EXPECT_EQ(TimeOf(run.state), Time(seconds(14), seconds(1)));
  run.Reports(a, NodeSucceeded{kFirst, Time(seconds(8), seconds(2))});
  EXPECT_EQ(run.Sent<Finish>(a)->verdict.time, Time(seconds(17), seconds(3)));
}

TEST_F(TimeTest, ThatOfABrokenRoundIsKept) {
  run.Reports(b, WorkerFailed{kFirst, {}});
  run.Reports(a, NodeStopped{kFirst, 1, {}, Time(seconds(7))});
  run.Reports(b, NodeStopped{kFirst, 1, {}, Time(seconds(6), seconds(1))});
  ASSERT_EQ(run.state.round, kSecond);
  run.Reports(a, NodeSucceeded{kSecond, Time(seconds(20), seconds(2))});
  run.Reports(b, NodeSucceeded{kSecond, Time(seconds(19), seconds(3))});
  EXPECT_EQ(run.state.verdict->time, Time(seconds(39), seconds(5)));
}

// Until another node has its place, its ranks do not train.
TEST_F(TimeTest, TheRanksOfALostNodeRecoverSinceItsLastReport) {
  run.now += seconds(3);
  run.Reports(b, Heartbeat{.time = Time(seconds(4))});
  run.now += milliseconds(1500);
  run.Do(NodeLost{NodeId{"id-b"}, "its agent was killed"});
  EXPECT_EQ(TimeOf(run.state), Time(seconds(4), seconds(3)));
  run.Reports(a, NodeStopped{kFirst, 1, {}, Time(seconds(9))});
  EXPECT_EQ(TimeOf(run.state), Time(seconds(13), seconds(3)));
}

}  // namespace
}  // namespace ddprun
