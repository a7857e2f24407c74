// SPDX-License-Identifier: Apache-2.0
// A node with --health-check: before it joins, and between two rounds.
#include "launcher/processes/side_command.h"
#include "tests/unit/launcher/supervisor_fixture.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SupervisorHealthTest : public SupervisorTest {
 protected:
  SupervisorHealthTest() { config_.checks_health = true; }

  static HealthChecked Unfit(milliseconds remaining = milliseconds(0)) {
    return {.healthy = false,
            .reason = "its health check exited with code 1: Xid 79",
            .remaining = remaining};
  }
  // All workers of round 1 have stopped, and another round follows.
  void StopRound(bool last = false, bool kept = false) {
    Feed(StartOf(1));
    Feed(Stop{RoundId{1}, CauseElsewhere(), last});
    Feed(AllGone{.kept = kept});
  }
  std::vector<std::string> Notes() const {
    std::vector<std::string> notes;
    for (const PrintNote& note : Of<PrintNote>(all_)) notes.push_back(note.text);
    return notes;
  }
};

TEST_F(SupervisorHealthTest, TheServiceIsToldOfTheStopOnceTheNodeIsFit) {
  StopRound();
  EXPECT_TRUE(Last<CheckHealth>());
  EXPECT_FALSE(Last<ReportStopped>());
  Feed(HealthChecked{});
  EXPECT_TRUE(Last<ReportStopped>());
  Feed(StartOf(2, 1));
  EXPECT_TRUE(Last<SpawnRound>());
}

TEST_F(SupervisorHealthTest, ANodeThatIsUnfitLeavesBeforeTheNextRoundCanForm) {
  StopRound();
  const Effects effects = Feed(Unfit());
  ASSERT_EQ(effects.size(), 2u);
  const auto* leave = std::get_if<Leave>(&std::get<SendReport>(effects[0]).report);
  ASSERT_NE(leave, nullptr);
  EXPECT_EQ(leave->reason.message, "its health check exited with code 1: Xid 79");
  EXPECT_EQ(leave->reason.signal, 0);
  EXPECT_FALSE(leave->close_run);
  EXPECT_TRUE(std::holds_alternative<ReportStopped>(effects[1]));
  Finish finish = FinishOf(false, 1);
  finish.verdict.cause = leave->reason;
  finish.verdict.cause->host = "b";
  Feed(finish);
  EXPECT_EQ(TheEnd().exit_code, 1);
  EXPECT_THAT(TheEnd().text, HasSubstr("this node has left the run"));
  EXPECT_THAT(TheEnd().text, HasSubstr("exited with code 1: Xid 79"));
}

TEST_F(SupervisorHealthTest, WithoutAnAnswerItEndsInTime) {
  StopRound();
  Feed(Unfit());
  Pass(kLeaveTimeout);
  EXPECT_EQ(TheEnd().exit_code, 1);
  EXPECT_THAT(TheEnd().text, HasSubstr("Xid 79"));
}

TEST_F(SupervisorHealthTest, KeptWorkersEndFirst) {
  StopRound(/*last=*/false, /*kept=*/true);
  EXPECT_TRUE(Last<CheckHealth>());
  Feed(Unfit());
  ASSERT_TRUE(Last<TerminateWorkers>());
  EXPECT_FALSE(Of<TerminateWorkers>(last_)[0].keep);
  EXPECT_FALSE(Last<ReportStopped>());
  Feed(AllGone{});
  EXPECT_TRUE(Last<ReportStopped>());
}

TEST_F(SupervisorHealthTest, NothingIsCheckedWhereNoRoundFollows) {
  StopRound(/*last=*/true);
  EXPECT_TRUE(Last<ReportStopped>());
  EXPECT_THAT(Of<CheckHealth>(all_), IsEmpty());
}

TEST_F(SupervisorHealthTest, ASignalDoesNotWaitForTheCheck) {
  StopRound();
  Feed(SignalReceived{SIGTERM});
  EXPECT_TRUE(Last<ReportStopped>());
  EXPECT_EQ(Reports<Leave>()[0].reason.signal, SIGTERM);
  EXPECT_THAT(Feed(Unfit()), IsEmpty());
}

TEST_F(SupervisorHealthTest, BeforeItJoinsItWaitsAsLongAsThereIsTime) {
  Feed(Unfit(seconds(9)));
  Feed(Unfit(seconds(4)));
  EXPECT_THAT(Notes(),
              testing::ElementsAre(HasSubstr(
                  "this node stands aside: its health check exited with code 1: Xid 79; it "
                  "joins once the check passes, 9 s left")));
  Feed(HealthChecked{});
  EXPECT_EQ(Notes().back(), "the health check passes now");
  Feed(Unfit());
  EXPECT_EQ(TheEnd().exit_code, 1);
  EXPECT_THAT(TheEnd().text, HasSubstr("node b has not joined: its health check exited"));
}

TEST(SideCommandTest, AFailureNamesTheLastLine) {
  const auto why = [](std::optional<Outcome> outcome, const std::string& output) {
    return WhyFailed({std::move(outcome), output}, milliseconds(1500), "--x");
  };
  EXPECT_EQ(why(Exited{3}, "a\nno GPU\n\n"), "exited with code 3: no GPU");
  EXPECT_EQ(why(Exited{3}, ""), "exited with code 3");
  EXPECT_EQ(why(Signaled{SIGSEGV}, "x\x1b[2J").find('\x1b'), std::string::npos);
  EXPECT_EQ(why(Signaled{SIGSEGV}, "x"), "was killed by SIGSEGV: x");
  EXPECT_EQ(why(SpawnFailed{126, "no"}, ""), "could not be started: no");
  EXPECT_EQ(why(std::nullopt, "at GPU 3"), "did not end within 1.5 s (--x): at GPU 3");
}

}  // namespace
}  // namespace ddprun
