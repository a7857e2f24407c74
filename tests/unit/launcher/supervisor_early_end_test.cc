// SPDX-License-Identifier: Apache-2.0
// A worker that exits with code 0 while others wait for it in a collective is the cause of their
// failure.
#include "tests/unit/launcher/supervisor_fixture.h"

#include "rendezvous/values/collectives.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;

void AddPlaceOf(int rank, std::optional<std::int64_t> waits, std::int64_t last,
                std::vector<RanksInPlace>& places) {
  CollectivePlace place;
  if (waits) place.waits = Collective{"0", *waits, "all_reduce"};
  place.last = {{"0", last, "all_reduce"}};
  AddPlace(rank, place, places);
}

// A worker of ranks 2 and 3; its last collective was number 5.
WorkerEnded Leaves(int local_rank) {
  WorkerEnded ended = Ended(local_rank, Exited{0});
  ended.age = milliseconds(1200);
  ended.last_lines = {"the data set is empty, leaving"};
  AddPlaceOf(2 + local_rank, std::nullopt, 5, ended.places);
  return ended;
}

// Rank 2, which waited in number 6.
WorkerEnded LosesItsPeer() {
  WorkerEnded ended = Ended(0, Exited{7});
  ended.last_lines = {"RuntimeError: Connection closed by peer"};
  AddPlaceOf(2, 6, 5, ended.places);
  return ended;
}

// Rank 0 of another node.
Failure PeerLostElsewhere() {
  Failure failure = CauseElsewhere();
  failure.last_lines = {"RuntimeError: Connection closed by peer"};
  AddPlaceOf(0, 6, 5, failure.places);
  return failure;
}

TEST_F(SupervisorTest, AWorkerThatLeftTheOthersWaitingIsTheCause) {
  Feed(StartOf(1));
  Feed(Leaves(1));
  EXPECT_TRUE(Reports<WorkerFailed>().empty()) << "nothing is wrong yet";
  Feed(LosesItsPeer());
  const auto reports = Reports<WorkerFailed>();
  ASSERT_EQ(reports.size(), 1u);
  const Failure& failure = reports[0].failure;
  EXPECT_EQ(failure.kind, FailureKind::kWorkerEndedEarly);
  EXPECT_EQ(failure.rank, 3);
  EXPECT_THAT(failure.last_lines, ElementsAre("the data set is empty, leaving"));
  EXPECT_EQ(ToExitCode(failure), 7) << "that of the failure which it caused";
  EXPECT_EQ(ToSentence(failure),
            "rank 3 (local rank 1 on host b, pid 101) exited with code 0 after 1.2 s, while others "
            "waited for it in all_reduce 6");
}

TEST_F(SupervisorTest, AWorkerThatHangsBecauseAnotherOneHasLeftIsNotTheCause) {
  Feed(StartOf(1));
  Feed(Leaves(1));
  WorkerHung hung{.local_rank = 0, .pid = 100};
  AddPlaceOf(2, 6, 5, hung.places);
  Feed(hung);
  const auto reports = Reports<WorkerFailed>();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].failure.rank, 3);
  EXPECT_EQ(ToExitCode(reports[0].failure), 124);
  EXPECT_EQ(Of<KillWorker>(last_).size(), 1u) << "it would not react to SIGTERM";
}

TEST_F(SupervisorTest, AWorkerOfAnotherNodeMayHaveWaitedForOneThatHasLeft) {
  Feed(StartOf(1));
  Feed(Leaves(1));
  Feed(Stop{RoundId{1}, PeerLostElsewhere()});
  const auto reports = Reports<WorkerFailed>();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].failure.rank, 3);
  EXPECT_EQ(reports[0].failure.exit_code, 9);
  Feed(Stop{RoundId{1}, PeerLostElsewhere()});
  EXPECT_EQ(Reports<WorkerFailed>().size(), 1u) << "once";
}

TEST_F(SupervisorTest, ANodeWhoseWorkersHaveAllLeftReportsItBeforeItAnswersTheStop) {
  Feed(StartOf(1));
  Feed(Leaves(0));
  Feed(Leaves(1));
  Feed(AllGone{});
  Feed(Stop{RoundId{1}, PeerLostElsewhere()});
  ASSERT_EQ(last_.size(), 2u);
  EXPECT_EQ(std::get<WorkerFailed>(std::get<SendReport>(last_[0]).report).failure.rank, 2);
  EXPECT_TRUE(std::holds_alternative<ReportStopped>(last_[1]));
}

TEST_F(SupervisorTest, OneThatHadDoneAllCollectivesHasLeftNobodyWaiting) {
  Feed(StartOf(1));
  WorkerEnded leaves = Leaves(1);
  leaves.places.clear();
  AddPlaceOf(3, std::nullopt, 6, leaves.places);
  Feed(leaves);
  Feed(LosesItsPeer());
  EXPECT_EQ(Reports<WorkerFailed>()[0].failure.rank, 2);
}

TEST_F(SupervisorTest, AFailureWithAReasonOfItsOwnIsNotPutDownToOneThatHasLeft) {
  Feed(StartOf(1));
  Feed(Leaves(1));
  WorkerEnded crashed = LosesItsPeer();
  crashed.last_lines = {"ValueError: no such column"};
  Feed(crashed);
  EXPECT_EQ(Reports<WorkerFailed>()[0].failure.rank, 2);
}

TEST_F(SupervisorTest, ANewRoundForgetsWhoHadLeft) {
  Feed(StartOf(1));
  Feed(Leaves(1));
  Feed(LosesItsPeer());
  Feed(Stop{RoundId{1}, CauseElsewhere()});
  Feed(AllGone{});
  Feed(StartOf(2, 1));
  EXPECT_TRUE(state_.succeeded.empty());
  Feed(LosesItsPeer());
  EXPECT_EQ(Reports<WorkerFailed>().back().failure.rank, 2);
}

}  // namespace
}  // namespace ddprun
