// SPDX-License-Identifier: Apache-2.0
// Notices that a machine of the run will be taken away.
#include "tests/unit/launcher/supervisor_fixture.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Accepted kAccepted{.takes_preemption = true, .plans_preemption = true};

class SupervisorNoticesTest : public SupervisorTest {
 protected:
  std::vector<Preemption> Told() const {
    std::vector<Preemption> told;
    for (const TellNotice& tell : Of<TellNotice>(all_)) told.push_back(tell.preemption);
    return told;
  }
};

TEST_F(SupervisorNoticesTest, AnOwnOneGoesToTheServiceWhichTellsIt) {
  Feed(kAccepted);
  Feed(StartOf(1));
  Feed(NoticeGiven{seconds(60), "SIGUSR1"});
  EXPECT_EQ(Reports<PreemptionReport>(), (std::vector<PreemptionReport>{{seconds(60), "SIGUSR1"}}));
  EXPECT_THAT(Told(), IsEmpty());
  const Preemption preemption{1, seconds(60), "b", 1, "SIGUSR1"};
  Feed(preemption);
  EXPECT_EQ(Told(), std::vector<Preemption>{preemption});
  EXPECT_EQ(state_.phase, Phase::kRunning);
}

TEST_F(SupervisorNoticesTest, OneBeforeTheServiceAnswersWaitsForIt) {
  Feed(NoticeGiven{seconds(60), "SIGUSR1"});
  EXPECT_THAT(all_, IsEmpty());
  now_ += seconds(10);
  Feed(kAccepted);
  EXPECT_EQ(Reports<PreemptionReport>().front().remaining, seconds(50));
}

TEST_F(SupervisorNoticesTest, AfterAReconnectionItIsSentAgainUntilItIsOver) {
  Feed(kAccepted);
  Feed(NoticeGiven{seconds(60), "SIGUSR1"});
  now_ += seconds(59);
  Feed(kAccepted);
  EXPECT_EQ(Reports<PreemptionReport>().back().remaining, seconds(1));
  now_ += seconds(1);
  EXPECT_THAT(Feed(kAccepted), IsEmpty());
}

TEST_F(SupervisorNoticesTest, OneThatTheServiceHasToldIsNotSentAgain) {
  Feed(kAccepted);
  Feed(NoticeGiven{seconds(60), "SIGUSR1"});
  Feed(Preemption{1, seconds(60), "b", 1, "SIGUSR1"});
  now_ += seconds(20);
  EXPECT_THAT(Feed(kAccepted), IsEmpty());
  Feed(NoticeGiven{seconds(10), "the file /x"});
  EXPECT_EQ(Reports<PreemptionReport>().back().remaining, seconds(10));
}

TEST_F(SupervisorNoticesTest, OneThatIsRepeatedIsNotSent) {
  Feed(kAccepted);
  Feed(NoticeGiven{seconds(60), "SIGUSR1"});
  now_ += seconds(1);
  EXPECT_THAT(Feed(NoticeGiven{seconds(60), "SIGUSR1"}), IsEmpty());
  Feed(NoticeGiven{seconds(20), "the file /x"});
  EXPECT_EQ(Reports<PreemptionReport>().back().reason, "the file /x");
  now_ += seconds(20);
  Feed(NoticeGiven{seconds(60), "SIGUSR1"});  // the last one is over
  EXPECT_EQ(Reports<PreemptionReport>().size(), 3u);
}

TEST_F(SupervisorNoticesTest, WorkersAreToldOnceForEachNumber) {
  Feed(kAccepted);
  Feed(Preemption{1, seconds(60), "a", 0, "x"});
  EXPECT_THAT(Feed(Preemption{1, seconds(50), "a", 0, "x"}), IsEmpty());
  Feed(Preemption{2, seconds(9), "c", 2, "y"});
  EXPECT_EQ(Told().size(), 2u);
}

TEST_F(SupervisorNoticesTest, OneThatIsOverIsForgotten) {
  Feed(kAccepted);
  Feed(Preemption{1, seconds(60), "a", 0, "x"});
  EXPECT_THAT(Feed(Preemption{7}), IsEmpty()) << "of another number";
  Feed(Preemption{1});
  EXPECT_TRUE(Last<EndNotice>());
}

// The service plans for each machine that goes, whichever notice is told.
TEST_F(SupervisorNoticesTest, AnOwnOneIsReportedBesideThatOfAnother) {
  Feed(kAccepted);
  Feed(Preemption{1, seconds(60), "a", 0, "x"});
  Feed(NoticeGiven{seconds(60), "SIGUSR1"});
  EXPECT_EQ(Reports<PreemptionReport>().size(), 1u);
  Feed(Preemption{1, seconds(60), "a", 0, "x"});  // the answer
  EXPECT_THAT(Feed(kAccepted), IsEmpty());
}

TEST_F(SupervisorNoticesTest, OneThatIsWithdrawnIsSaidUntilTheServiceKnows) {
  Feed(kAccepted);
  Feed(NoticeGiven{seconds(60), "azure: Preempt"});
  Feed(Preemption{1, seconds(60), "b", 1, "azure: Preempt"});
  EXPECT_THAT(Feed(NoticeWithdrawn{"SIGUSR1"}), IsEmpty()) << "another source's";
  Feed(NoticeWithdrawn{"azure: Preempt"});
  EXPECT_TRUE(Reports<PreemptionReport>().back().withdrawn);
  EXPECT_THAT(Of<PrintNote>(last_).at(0).text, HasSubstr("this machine stays after all"));
  Feed(kAccepted);
  EXPECT_EQ(Of<SendReport>(last_).size(), 1u) << "it may have been lost";
  Feed(Preemption{1});
  EXPECT_THAT(Feed(kAccepted), IsEmpty());
  Feed(NoticeGiven{seconds(90), "azure: Preempt"});
  EXPECT_EQ(Reports<PreemptionReport>().back().remaining, seconds(90)) << "another one";
}

TEST_F(SupervisorNoticesTest, ThatAllHaveSavedIsSaidAgainOnANewStream) {
  Feed(kAccepted);
  Feed(StartOf(1));
  Feed(Preemption{3, seconds(60), "a", 0, "x"});
  Feed(WorkersSaved{3});
  EXPECT_EQ(Reports<PreemptionReport>().back().saved, 3u);
  Feed(kAccepted);
  EXPECT_EQ(Of<SendReport>(last_).size(), 1u);
  Feed(Preemption{4, seconds(6), "a", 0, "x"});
  EXPECT_THAT(Feed(kAccepted), IsEmpty()) << "not for the last one";
}

// It would take each report for a notice.
TEST_F(SupervisorNoticesTest, AServiceThatPlansNothingIsNotSentMore) {
  Feed(Accepted{.takes_preemption = true});
  Feed(NoticeGiven{seconds(60), "azure: Preempt"});
  Feed(Preemption{1, seconds(60), "b", 1, "azure: Preempt"});
  Feed(WorkersSaved{1});
  Feed(NoticeWithdrawn{"azure: Preempt"});
  EXPECT_EQ(Reports<PreemptionReport>().size(), 1u);
}

// Whoever sent SIGTERM must not take the end of the node for that of its work.
TEST_F(SupervisorNoticesTest, ADrainedNodeEndsAsItsNoticeSays) {
  for (const int code : {0, 143}) {
    state_ = {};
    all_.clear();
    Feed(kAccepted);
    Feed(NoticeGiven{seconds(60), "kubernetes: SIGTERM", code});
    Finish drained = FinishOf(/*success=*/false, 0);
    drained.verdict.cause->kind = FailureKind::kNodeDrained;
    Feed(drained);
    EXPECT_EQ(TheEnd().exit_code, code);
    EXPECT_THAT(TheEnd().text, HasSubstr("exit code: " + std::to_string(code)));
  }
}

TEST_F(SupervisorNoticesTest, AnOlderServiceIsNamed) {
  Feed(Accepted{});
  EXPECT_THAT(last_, IsEmpty());
  Feed(NoticeGiven{seconds(60), "SIGUSR1"});
  EXPECT_THAT(Reports<PreemptionReport>(), IsEmpty());
  const auto notes = Of<PrintNote>(last_);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0].text, HasSubstr("install the same ddprun on all nodes"));
}

TEST_F(SupervisorNoticesTest, WorkersThatAreBeingStoppedForGoodAreNotTold) {
  Feed(kAccepted);
  Feed(StartOf(1));
  Feed(SignalReceived{SIGTERM});
  EXPECT_THAT(Feed(Preemption{1, seconds(60), "a", 0, "x"}), IsEmpty());
  EXPECT_THAT(Feed(NoticeGiven{seconds(60), "SIGUSR1"}), IsEmpty());
}

}  // namespace
}  // namespace ddprun
