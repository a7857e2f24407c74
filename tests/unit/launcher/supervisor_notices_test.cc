// SPDX-License-Identifier: Apache-2.0
// Notices that a machine of the run will be taken away.
#include "tests/unit/launcher/supervisor_fixture.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Accepted kAccepted{.takes_preemption = true};

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

TEST_F(SupervisorNoticesTest, OneThatIsOverIsForgottenAndTheOwnOneCounts) {
  Feed(kAccepted);
  Feed(Preemption{1, seconds(60), "a", 0, "x"});
  Feed(NoticeGiven{seconds(60), "SIGUSR1"});  // the same
  EXPECT_THAT(Reports<PreemptionReport>(), IsEmpty());
  EXPECT_THAT(Feed(Preemption{7}), IsEmpty()) << "of another number";
  Feed(Preemption{1});
  EXPECT_TRUE(Last<EndNotice>());
  EXPECT_EQ(Of<SendReport>(last_).size(), 1u);
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
