// SPDX-License-Identifier: Apache-2.0
// Which failure a broken round's verdict names, and whom it calls outcomes.
#include <gtest/gtest.h>

#include <csignal>

#include "rendezvous/membership/membership.h"
#include "rendezvous/values/collectives.h"
#include "rendezvous/values/worker_outcomes.h"
#include "tests/unit/rendezvous/membership_fixture.h"

namespace ddprun {
namespace {

constexpr RoundId kFirst{1};

Failure Symptom(int rank) {
  Failure failure = ExitedWith(1);
  failure.rank = rank;
  failure.last_lines = {"RuntimeError: Connection closed by peer"};
  return failure;
}

Failure Origin(int rank, int signal) {
  Failure failure = ExitedWith(0);
  failure.kind = FailureKind::kWorkerSignaled;
  failure.rank = rank;
  failure.signal = signal;
  return failure;
}

class CauseTest : public ::testing::Test {
 protected:
  void Seal(int restarts = 0) {
    const JoinOptions options{
        .nodes = 3, .restarts = restarts, .local_world_size = 2, .lease = std::chrono::hours(1)};
    a = run.Joins("a", options);
    b = run.Joins("b", options);
    c = run.Joins("c", options);
    ASSERT_EQ(run.state.phase, RunPhase::kSealed);
  }
  void Stops(LinkId link, std::vector<WorkerEnds> ends = {}) {
    run.Reports(link, NodeStopped{kFirst, 1, std::move(ends)});
  }
  TestRun run;
  LinkId a{}, b{}, c{};
};

TEST_F(CauseTest, AnOriginTakesThePlaceOfASymptomAndAllAreTold) {
  Seal();
  run.Reports(a, WorkerFailed{kFirst, Symptom(0)});
  EXPECT_EQ(run.Sent<Stop>(b)->cause.rank, 0);
  Stops(c);
  run.Reports(b, WorkerFailed{kFirst, Origin(3, SIGSEGV)});
  for (const LinkId link : {a, b, c}) EXPECT_EQ(run.Sent<Stop>(link)->cause.rank, 3);
  Stops(a);
  Stops(b);
  for (const LinkId link : {a, b, c}) {
    ASSERT_TRUE(run.Sent<Finish>(link));
    EXPECT_EQ(run.Sent<Finish>(link)->verdict.cause->rank, 3);
    EXPECT_EQ(run.Sent<Finish>(link)->verdict.exit_code, 128 + SIGSEGV);
  }
}

TEST_F(CauseTest, AmongEqualsTheFirstStays) {
  Seal();
  run.Reports(a, WorkerFailed{kFirst, Symptom(0)});
  run.Reports(b, WorkerFailed{kFirst, Symptom(2)});
  EXPECT_TRUE(run.effects.empty());
  run.Reports(b, WorkerFailed{kFirst, Origin(2, SIGSEGV)});
  run.Reports(c, WorkerFailed{kFirst, Origin(4, SIGKILL)});
  EXPECT_TRUE(run.effects.empty());
  EXPECT_EQ(run.state.cause->rank, 2);
}

// The place of a rank that waits in that all_reduce, or has not begun it.
std::vector<RanksInPlace> PlaceOf(int rank, std::optional<std::int64_t> waits) {
  std::vector<RanksInPlace> places;
  CollectivePlace at{std::nullopt, {{"0", 6, "barrier"}}};
  if (waits) at.waits = Collective{"0", *waits, "all_reduce"};
  AddPlace(rank, at, places);
  return places;
}

TEST_F(CauseTest, RanksOfOtherNodesAddWhereTheyWere) {
  Seal();
  Failure failure = Symptom(0);
  failure.places = PlaceOf(0, 7);
  run.Reports(a, WorkerFailed{kFirst, failure});
  run.Reports(a, NodeStopped{kFirst, 1, {}, {}, PlaceOf(1, 7)});
  run.Reports(b, NodeStopped{kFirst, 1, {}, {}, PlaceOf(3, std::nullopt)});
  run.Reports(c, NodeStopped{kFirst, 1, {}, {}, PlaceOf(1, 9)});  // not a rank of its own
  ASSERT_TRUE(run.Sent<Finish>(a));
  EXPECT_EQ(ToSentence(run.Sent<Finish>(a)->verdict.cause->places),
            "ranks 0-1 wait in all_reduce 7; rank 3 has not begun it: its last was barrier 6");
}

TEST_F(CauseTest, AWorkerThatEndedEarlyIsNamedWithWhatTheOthersWaitedIn) {
  Seal();
  Failure failure = Symptom(0);
  failure.places = PlaceOf(0, 7);
  run.Reports(a, WorkerFailed{kFirst, failure});
  Failure early = ExitedWith(1);
  early.kind = FailureKind::kWorkerEndedEarly;
  early.rank = 3;
  early.places = PlaceOf(3, std::nullopt);
  run.Reports(b, WorkerFailed{kFirst, early});
  run.Reports(a, NodeStopped{kFirst, 1, {{EndKind::kExited, 1, 0, 1}}});
  run.Reports(b, NodeStopped{kFirst, 1, {{EndKind::kSucceeded, 0, 1, 1}}});
  Stops(c);
  ASSERT_TRUE(run.Sent<Finish>(a));
  const Verdict verdict = run.Sent<Finish>(a)->verdict;
  EXPECT_EQ(ToSentence(*verdict.cause),
            "rank 3 (local rank 1 on host b) exited with code 0, while others waited for it in "
            "all_reduce 7");
  EXPECT_EQ(verdict.exit_code, 1);
  ASSERT_EQ(verdict.outcomes.size(), 1u) << "the cause is not among the others";
  EXPECT_EQ(verdict.outcomes[0].kind, EndKind::kExited);
}

Failure Hung(int rank, std::int64_t step, const std::string& section) {
  Failure failure = ExitedWith(0);
  failure.kind = FailureKind::kWorkerHung;
  failure.rank = rank;
  failure.hang = Hang{.silent = std::chrono::seconds(30), .step = step, .section = section};
  return failure;
}

TEST_F(CauseTest, OfAllThatHangTheOneThatIsBehindIsTheCause) {
  Seal();
  run.Reports(a, WorkerFailed{kFirst, Hung(0, 18, "all_reduce")});
  EXPECT_EQ(run.Sent<Stop>(c)->cause.rank, 0);
  run.Reports(c, WorkerFailed{kFirst, Hung(5, 17, "data")});
  EXPECT_EQ(run.Sent<Stop>(b)->cause.rank, 5);
  EXPECT_EQ(run.Sent<Stop>(b)->cause.hang->others_step, 18);
  run.Reports(b, WorkerFailed{kFirst, Hung(3, 19, "all_reduce")});
  EXPECT_TRUE(run.effects.empty());
  for (const LinkId link : {a, b, c}) Stops(link);
  const Verdict verdict = run.Sent<Finish>(a)->verdict;
  EXPECT_EQ(verdict.cause->rank, 5);
  EXPECT_EQ(verdict.cause->hang->others_step, 19);
  EXPECT_EQ(verdict.exit_code, 124);
}

TEST_F(CauseTest, InOneStepTheOneThatWaitsForNobodyIsTheCause) {
  Seal();
  run.Reports(a, WorkerFailed{kFirst, Hung(0, 18, "backward, all_reduce")});
  run.Reports(b, WorkerFailed{kFirst, Hung(2, 18, "barrier")});
  EXPECT_EQ(run.state.cause->rank, 0);
  run.Reports(c, WorkerFailed{kFirst, Hung(4, 18, "data")});
  EXPECT_EQ(run.state.cause->rank, 4);
}

TEST_F(CauseTest, WhatFailsAfterItsNodeHasStoppedMeansNothing) {
  Seal();
  run.Reports(a, WorkerFailed{kFirst, Symptom(0)});
  Stops(b);
  run.Reports(b, WorkerFailed{kFirst, Origin(2, SIGSEGV)});
  EXPECT_EQ(run.state.cause->rank, 0);
}

TEST_F(CauseTest, AKilledAgentExplainsItsPeersFailures) {
  Seal();
  run.Reports(a, WorkerFailed{kFirst, Symptom(0)});
  run.Do(NodeLost{NodeId{"id-b"}, "its agent was killed by signal 9 (SIGKILL)"});
  EXPECT_EQ(run.Sent<Stop>(a)->cause.host, "b");
  Stops(a);
  Stops(c);
  EXPECT_EQ(run.Sent<Finish>(a)->verdict.cause->kind, FailureKind::kNodeLost);
}

TEST_F(CauseTest, AnAgentKilledAfterItsWorkersWereStoppedExplainsNothing) {
  Seal();
  run.Reports(a, WorkerFailed{kFirst, Symptom(0)});
  Stops(b);
  run.Do(NodeLost{NodeId{"id-b"}, "its agent was killed by signal 9 (SIGKILL)"});
  EXPECT_EQ(run.state.cause->rank, 0);
}

TEST_F(CauseTest, TheVerdictHasTheVictims) {
  Seal();
  run.Reports(b, WorkerFailed{kFirst, Origin(3, SIGSEGV)});
  Stops(a, {{EndKind::kExited, 1, 0, 1}, {EndKind::kStopped, 0, 1, 1}});
  Stops(b, {{EndKind::kStopped, 0, 0, 1}, {EndKind::kSignaled, SIGSEGV, 1, 1}});
  run.Do(NodeLost{NodeId{"id-c"}, "its agent was killed"});
  const auto finish = run.Sent<Finish>(a);
  ASSERT_TRUE(finish);
  std::string text;
  for (const WorkerOutcomes& way : finish->verdict.outcomes)
    text += RanksOf(way) + " " + WayOf(way) + "\n";
  EXPECT_EQ(text,
            "rank 0 exited with code 1\n"
            "ranks 4-5 were lost with node c\n"
            "ranks 1-2 were stopped by ddprun\n");
}

TEST_F(CauseTest, EndsOfWorkersThatTheNodeHasNotAreNobodys) {
  Seal();
  run.Reports(b, WorkerFailed{kFirst, Origin(3, SIGSEGV)});
  Stops(a, {{EndKind::kExited, 1, -1, 1},
            {EndKind::kExited, 1, 0, 3},
            {EndKind::kExited, 1, 2, 1},
            {EndKind::kExited, 1, 1, 0},
            {EndKind::kExited, 1, 1, 2147483647}});
  EXPECT_TRUE(run.state.outcomes.empty());
}

TEST_F(CauseTest, ANewRoundHasVictimsOfItsOwn) {
  Seal(/*restarts=*/1);
  run.Reports(b, WorkerFailed{kFirst, Origin(3, SIGSEGV)});
  for (const LinkId link : {a, b, c}) Stops(link, {{EndKind::kStopped, 0, 0, 2}});
  ASSERT_EQ(run.state.phase, RunPhase::kSealed);
  EXPECT_TRUE(run.state.outcomes.empty());
}

}  // namespace
}  // namespace ddprun
