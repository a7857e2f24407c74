// SPDX-License-Identifier: Apache-2.0
// A notice of one node reaches all nodes, once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/base/limits.h"
#include "rendezvous/observe/run_status.h"
#include "tests/unit/rendezvous/membership_fixture.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class PreemptionTest : public ::testing::Test {
 protected:
  void Begin() {
    a = run.Joins("a", options);
    b = run.Joins("b", options);
    ASSERT_EQ(run.state.phase, RunPhase::kSealed);
  }
  void Report(LinkId link, milliseconds remaining, const std::string& reason = "SIGUSR1") {
    run.Reports(link, PreemptionReport{remaining, reason});
  }
  int Notes() const {
    int notes = 0;
    for (const RunNotice& note : run.notes) notes += note.kind == NoticeKind::kNodeNotice;
    return notes;
  }

  TestRun run;
  JoinOptions options{
      .nodes = 2, .restarts = 3, .nodes_min = 1, .lease = seconds(10), .hears_preemption = true};
  LinkId a{}, b{};
};

TEST_F(PreemptionTest, AllNodesAreTold) {
  Begin();
  Report(b, seconds(120));
  const Preemption wanted{1, seconds(120), "b", 1, "SIGUSR1"};
  EXPECT_EQ(run.Sent<Preemption>(a), wanted);
  EXPECT_EQ(run.Sent<Preemption>(b), wanted);
  EXPECT_EQ(run.effects.size(), 2u);
  ASSERT_EQ(Notes(), 1);
  EXPECT_EQ(run.notes[0].words,
            "node b (node rank 1) will be taken away in 120 s (SIGUSR1); it is drained once the "
            "workers have saved");
  EXPECT_EQ(run.notes[0].host, "b");
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
}

TEST_F(PreemptionTest, OneThatIsRepeatedIsTheSameFromWhicheverNode) {
  Begin();
  Report(b, seconds(120));
  run.now += seconds(1);
  for (const LinkId link : {a, b}) {
    Report(link, seconds(120));
    EXPECT_EQ(run.Sent<Preemption>(link)->number, 1u) << "the answer";
    EXPECT_EQ(run.effects.size(), 1u);
    // Sent at about the same moment, on another way.
    Report(link, seconds(119) - kSameNoticeTime + milliseconds(1));
    EXPECT_EQ(run.Sent<Preemption>(link)->number, 1u);
    EXPECT_EQ(run.effects.size(), 1u);
    EXPECT_EQ(Notes(), 0);
  }
}

TEST_F(PreemptionTest, AnEarlierDeadlineIsAnother) {
  Begin();
  Report(b, seconds(120));
  Report(a, seconds(30), "the file /x");
  EXPECT_EQ(run.Sent<Preemption>(b), (Preemption{2, seconds(30), "a", 0, "the file /x"}));
  EXPECT_EQ(Notes(), 1);
}

TEST_F(PreemptionTest, AfterItsTimeANoticeIsANewOne) {
  Begin();
  Report(b, seconds(2));
  run.now += seconds(2);
  EXPECT_EQ(PreemptionOf(run.state, run.now), std::nullopt);
  Report(b, seconds(100));
  EXPECT_EQ(run.Sent<Preemption>(a)->number, 2u);
}

TEST_F(PreemptionTest, ANodeThatComesOrComesBackIsToldTheTimeLeft) {
  a = run.Joins("a", options);
  Report(a, seconds(60));  // no round runs yet, and it has no rank
  EXPECT_EQ(run.Sent<Preemption>(a), (Preemption{1, seconds(60), "a", -1, "SIGUSR1"}));
  run.now += seconds(4);
  b = run.Joins("b", options);
  EXPECT_EQ(run.Sent<Preemption>(b)->remaining, seconds(56));
  ASSERT_EQ(run.state.phase, RunPhase::kSealed);
  run.Goes(b);
  run.now += seconds(6);
  options.resume = true;
  b = run.Joins("b", options);
  EXPECT_EQ(run.Sent<Preemption>(b), (Preemption{1, seconds(50), "a", 0, "SIGUSR1"}));
  EXPECT_FALSE(run.Sent<Preemption>(a));
}

TEST_F(PreemptionTest, TimesAreKeptWithinLimits) {
  Begin();
  Report(b, seconds(-5));
  EXPECT_EQ(run.Sent<Preemption>(a)->remaining, kNoticeMin);
  run.now += kNoticeMin;
  Report(b, std::chrono::hours(100'000));
  EXPECT_EQ(run.Sent<Preemption>(a)->remaining, kNoticeMax);
}

TEST_F(PreemptionTest, AnOlderNodeIsNotTold) {
  a = run.Joins("a", options);
  options.hears_preemption = false;
  b = run.Joins("b", options);
  Report(a, seconds(60));
  EXPECT_TRUE(run.Sent<Preemption>(a));
  EXPECT_FALSE(run.Sent<Preemption>(b));
  EXPECT_EQ(run.effects.size(), 1u);
}

TEST_F(PreemptionTest, TheStatusHasItWhileItStands) {
  Begin();
  EXPECT_FALSE(StatusOf(run.state, run.now, 8).preemption);
  Report(b, seconds(60));
  run.now += seconds(15);
  const auto shown = StatusOf(run.state, run.now, 8).preemption;
  ASSERT_TRUE(shown);
  EXPECT_EQ(*shown, (Preemption{1, seconds(45), "b", 1, "SIGUSR1"}));
  EXPECT_FALSE(StatusOf(run.state, run.now + seconds(45), 8).preemption);
}

// The others may go on for long: workers that start do not hear of a machine that is gone.
TEST_F(PreemptionTest, ItIsOverWhenItsNodeIsGone) {
  Begin();
  Report(b, seconds(60));
  run.Do(NodeLost{NodeId{"id-b"}, "its agent was killed"});
  const auto over = run.Sent<Preemption>(a);
  ASSERT_TRUE(over);
  EXPECT_EQ(over->number, 1u);
  EXPECT_EQ(over->remaining, milliseconds(0));
  EXPECT_EQ(PreemptionOf(run.state, run.now), std::nullopt);
  run.Do(NodeLost{NodeId{"id-a"}, "its agent was killed"});
  EXPECT_EQ(PreemptionOf(run.state, run.now), std::nullopt);
}

TEST_F(PreemptionTest, TheLossOfAnotherNodeDoesNotEndIt) {
  Begin();
  Report(b, seconds(60));
  run.Do(NodeLost{NodeId{"id-a"}, "its agent was killed"});
  EXPECT_FALSE(run.Sent<Preemption>(b));
  EXPECT_TRUE(PreemptionOf(run.state, run.now));
}

// ---- The plan

class NoticeDrainTest : public PreemptionTest {
 protected:
  // Nodes a, b and c run, and more may join.
  void BeginWithThree(int nodes_min) {
    options.nodes = 3;
    options.nodes_min = nodes_min;
    options.last_call = seconds(0);
    options.restarts = 0;
    options.lease = seconds(0);  // nobody sends heartbeats
    options.nodes_min = 3;  // so that the first round has all of them
    a = run.Joins("a", options);
    b = run.Joins("b", options);
    c = run.Joins("c", options);
    run.state.rules->nodes_min = nodes_min;
    ASSERT_EQ(run.state.phase, RunPhase::kSealed);
  }
  void Saves(LinkId link, std::uint64_t number = 1) {
    run.Reports(link, PreemptionReport{.saved = number});
  }
  std::string CauseWords() const { return run.state.cause ? ToSentence(*run.state.cause) : "none"; }
  bool IsDrained(const char* host) const {
    return !run.state.members.at(NodeId{std::string("id-") + host}).drained_by.empty();
  }

  LinkId c{};
};

TEST_F(NoticeDrainTest, ANodeIsDrainedOnceTheWorkersOfAllHaveSaved) {
  BeginWithThree(2);
  Report(b, seconds(120), "aws: spot instance-action terminate");
  Saves(a);
  Saves(c);
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
  Saves(b, 7);  // of another notice
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
  Saves(b);
  EXPECT_EQ(run.state.phase, RunPhase::kBroken);
  EXPECT_EQ(CauseWords(),
            "node b (node rank 1) was drained by its notice (aws: spot instance-action terminate, "
            "120 s)");
  for (const LinkId link : {a, b, c}) run.Reports(link, NodeStopped{.round = RoundId{1}});
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
  EXPECT_EQ(run.state.start->node_count, 2);
  EXPECT_EQ(run.state.restart_count, 0);
  EXPECT_EQ(run.state.drain_due, std::nullopt);
  EXPECT_EQ(PreemptionOf(run.state, run.now), std::nullopt);
}

TEST_F(NoticeDrainTest, WhenHalfOfTheTimeIsOverNobodyIsWaitedFor) {
  BeginWithThree(2);
  Report(b, seconds(30));
  Saves(a);
  run.PassesUntil(run.now + seconds(15) - milliseconds(1));
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
  run.PassesUntil(run.now + milliseconds(1));
  EXPECT_EQ(run.state.phase, RunPhase::kBroken);
}

TEST_F(NoticeDrainTest, OfALongTimeWhatIsNeededToStopIsLeft) {
  BeginWithThree(2);
  Report(b, std::chrono::hours(2));
  EXPECT_EQ(run.state.drain_due, run.now + std::chrono::hours(2) - kStopTimeout);
}

TEST_F(NoticeDrainTest, TwoLeaveInOneBreak) {
  BeginWithThree(1);
  Report(b, seconds(30));
  Report(c, seconds(100));
  run.PassesUntil(run.now + seconds(15));
  EXPECT_EQ(run.state.phase, RunPhase::kBroken);
  EXPECT_TRUE(IsDrained("b") && IsDrained("c"));
  EXPECT_FALSE(IsDrained("a"));
  for (const LinkId link : {a, b, c}) run.Reports(link, NodeStopped{.round = RoundId{1}});
  EXPECT_EQ(run.state.start->node_count, 1);
}

TEST_F(NoticeDrainTest, IfTooFewStayNobodyLeavesUntilAnotherOneComes) {
  BeginWithThree(3);
  Report(b, seconds(60));
  EXPECT_THAT(run.notes.at(0).words, ::testing::HasSubstr("it is not drained, as the run needs 3 "
                                                          "nodes and has 2 that stay"));
  const TimePoint begin = run.now;
  for (const LinkId link : {a, b, c}) Saves(link);
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
  run.PassesUntil(begin + seconds(31));
  run.Joins("d", options);
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
  run.PassesUntil(begin + seconds(45));  // half of the rest
  EXPECT_EQ(run.state.phase, RunPhase::kBroken);
  EXPECT_TRUE(IsDrained("b"));
}

TEST_F(NoticeDrainTest, ANoticeToAllNodesOfAJobDrainsNone) {
  BeginWithThree(1);
  for (const LinkId link : {a, b, c}) Report(link, seconds(30));
  for (const LinkId link : {a, b, c}) Saves(link);
  run.PassesUntil(run.now + seconds(29));
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
}

TEST_F(NoticeDrainTest, ARunWhoseWorkersEndIsNotBroken) {
  BeginWithThree(1);
  Report(b, seconds(30));
  run.Reports(a, NodeSucceeded{RoundId{1}});  // it has saved and ended
  run.PassesUntil(run.now + seconds(16));
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
}

TEST_F(NoticeDrainTest, OneThatIsWithdrawnDrainsNobody) {
  BeginWithThree(1);
  Report(b, seconds(30));
  run.Reports(b, PreemptionReport{.withdrawn = true});
  EXPECT_EQ(run.Sent<Preemption>(a), Preemption{.number = 1});
  EXPECT_EQ(run.state.drain_due, std::nullopt);
  EXPECT_EQ(PreemptionOf(run.state, run.now), std::nullopt);
  for (const LinkId link : {a, b, c}) Saves(link);
  run.PassesUntil(run.now + seconds(29));
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
  run.Reports(a, PreemptionReport{.withdrawn = true});  // it had none
  EXPECT_TRUE(run.effects.empty());
}

TEST_F(NoticeDrainTest, AnotherOneThatStandsIsToldInItsPlace) {
  BeginWithThree(1);
  Report(b, seconds(30));
  Report(c, seconds(90));
  run.Reports(b, PreemptionReport{.withdrawn = true});
  EXPECT_EQ(run.Sent<Preemption>(a), (Preemption{2, seconds(90), "c", 2, "SIGUSR1"}));
  Report(b, seconds(20));
  EXPECT_EQ(run.Sent<Preemption>(a)->number, 3u);
  run.state.rules->nodes_min = 3;  // nobody can leave
  run.PassesUntil(run.now + seconds(20));
  EXPECT_EQ(PreemptionOf(run.state, run.now)->host, "c");
}

TEST_F(NoticeDrainTest, ASpareGoesAtOnceAndNobodyIsTold) {
  BeginWithThree(3);
  const LinkId d = run.Joins("d", options);
  Report(d, seconds(120));
  EXPECT_TRUE(run.Sent<Finish>(d));
  EXPECT_FALSE(run.Sent<Preemption>(a));
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
  EXPECT_EQ(run.state.members.size(), 3u);
}

TEST_F(NoticeDrainTest, TheHostOfTheServiceStays) {
  options.hosts_service = true;
  options.lease = seconds(0);
  options.nodes = 2;
  a = run.Joins("a", options);
  options.hosts_service = false;
  b = run.Joins("b", options);
  Report(a, seconds(30));
  EXPECT_THAT(run.notes.at(0).words, ::testing::HasSubstr("and the run ends with it"));
  for (const LinkId link : {a, b}) Saves(link);
  run.PassesUntil(run.now + seconds(29));
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
}

TEST_F(PreemptionTest, ARunThatIsOverTakesNone) {
  Begin();
  run.Reports(a, NodeSucceeded{RoundId{1}});
  run.Reports(b, NodeSucceeded{RoundId{1}});
  ASSERT_EQ(run.state.phase, RunPhase::kClosed);
  Report(b, seconds(60));
  EXPECT_TRUE(run.effects.empty());
}

}  // namespace
}  // namespace ddprun
