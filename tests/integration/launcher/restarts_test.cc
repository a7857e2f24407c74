// SPDX-License-Identifier: Apache-2.0
// What follows a failure: each flag once, with the real ddprun.
#include "tests/integration/launcher/ddprun_fixture.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using RestartsTest = DdprunTest;

TEST_F(RestartsTest, AProgramThatIsNotThereIsNotTriedAgain) {
  auto run = Launch({"--max-restarts", "5", "sh", "-c", "exec no-such-program"});
  EXPECT_EQ(run->Wait(), 127);
  EXPECT_THAT(run->err(),
              HasSubstr("round 1\n  restarts: 0 of 5 used\n  not restarted: exit code 127 is not "
                        "worth another try (--no-restart-exit-codes 126-127)\n"));
}

TEST_F(RestartsTest, ExitCodesAndSignalsThatAreNotWorthARestart) {
  for (const char* end : {"exit 9", "kill -SEGV $$", "exit 78"}) {
    auto run = Launch({"--max-restarts", "5", "--no-restart-exit-codes", "9,77-80,SIGSEGV", "sh",
                       "-c", std::string("[ $DDPRUN_ROUND = 2 ] || exit 1; ") + end});
    run->Wait();
    EXPECT_THAT(run->err(), HasSubstr("round 2\n  restarts: 1 of 5 used\n")) << end;
    EXPECT_THAT(run->err(), HasSubstr("is not worth another try")) << end;
  }
}

TEST_F(RestartsTest, OrTheOnlyOnesThatAre) {
  auto run = Launch({"--max-restarts", "5", "--restart-exit-codes", "75", "sh", "-c",
                     "[ $DDPRUN_ROUND = 2 ] || exit 75; exit 3"});
  EXPECT_EQ(run->Wait(), 3);
  EXPECT_THAT(run->err(), HasSubstr("restarts: 1 of 5 used\n  not restarted: exit code 3 is none "
                                    "that is worth another try (--restart-exit-codes 75)\n"));
}

// The worker takes longer than the window, however fast the machine is.
TEST_F(RestartsTest, OnlyRestartsWithinTheWindowCount) {
  auto run = Launch({"--max-restarts", "1", "--restart-window", "0.2", "sh", "-c",
                     "[ $DDPRUN_ROUND = 4 ] && exit 0; sleep 0.3; exit 1"});
  EXPECT_EQ(run->Wait(), 0);
  EXPECT_THAT(run->err(), HasSubstr("restart 1 of 1 as round 4 (3 in all): rank 0"));
}

TEST_F(RestartsTest, AWindowThatIsNotOverIsInTheVerdict) {
  auto run = Launch({"--max-restarts", "1", "--restart-window", "3600", "sh", "-c", "exit 6"});
  EXPECT_EQ(run->Wait(), 6);
  EXPECT_THAT(run->err(), HasSubstr("restarts: 1 of 1 used\n  not restarted: --max-restarts 1 are "
                                    "used up within 3600 s (--restart-window)\n"));
}

TEST_F(RestartsTest, WorkersThatRanLongGiveAllRestartsBack) {
  auto run = Launch({"--max-restarts", "1", "--restart-reset", "0.2", "sh", "-c",
                     "[ $DDPRUN_ROUND = 4 ] && exit 0; sleep 0.3; exit 1"});
  EXPECT_EQ(run->Wait(), 0);
  EXPECT_THAT(run->err(), HasSubstr("restart 1 of 1 as round 4 (3 in all): rank 0"));
}

TEST_F(RestartsTest, RoundsWithoutProgressEndTheRunEarly) {
  auto run = Launch({"--max-restarts", "100", "--no-progress-restarts", "2", "sh", "-c", "exit 4"});
  EXPECT_EQ(run->Wait(), 4);
  EXPECT_THAT(run->err(), HasSubstr("restarts: 1 of 100 used\n  not restarted: 2 rounds in a row "
                                    "have made no progress (--no-progress-restarts 2)\n"));
}

TEST_F(RestartsTest, ARestartIsDelayedAndDelayedLonger) {
  auto run = Launch({"--max-restarts", "2", "--restart-delay", "0.4:10", "sh", "-c", "exit 4"});
  EXPECT_EQ(run->Wait(), 4);
  EXPECT_GE(run->duration(), std::chrono::milliseconds(400 + 800));
  EXPECT_THAT(run->err(), HasSubstr("restarts: 2 of 2 used\n"));
}

TEST_F(RestartsTest, TheOnlyNodeCannotBeLeftOut) {
  auto run = Launch({"--max-restarts", "9", "--node-failures-max", "2", "sh", "-c", "exit 4"});
  EXPECT_EQ(run->Wait(), 4);
  EXPECT_THAT(run->err(), HasSubstr("restarts: 1 of 9 used\n"));
  EXPECT_THAT(run->err(), HasSubstr("is left out after 2 failures (--node-failures-max 2), and "));
}

// ---- Two nodes

using TwoNodesRestartsTest = DdprunPortTest;

TEST_F(TwoNodesRestartsTest, BothHearOneCount) {
  const std::string script =
      "[ $DDPRUN_ROUND = 3 ] && exit 7; [ $RANK = $(($DDPRUN_ROUND % 2)) ] || sleep 100; "
      "sleep 0.3; exit 1";
  const std::vector<std::string> flags = {"--max-restarts", "1", "--restart-reset", "0.2"};
  auto first = LaunchNode(0, port_, script, flags);
  auto second = LaunchNode(1, port_, script, flags);
  EXPECT_EQ(first->Wait(), 7);
  EXPECT_EQ(second->Wait(), 7);
  for (const auto* run : {first.get(), second.get()}) {
    EXPECT_THAT(run->err(), HasSubstr("restart 1 of 1 as round 2: rank 1"));
    EXPECT_THAT(run->err(), HasSubstr("restart 1 of 1 as round 3 (2 in all): rank 0"));
    EXPECT_THAT(run->err(), HasSubstr("restarts: 1 of 1 used, 2 in all\n"));
  }
}

TEST_F(TwoNodesRestartsTest, AnEndThatIsNotWorthARestartEndsBoth) {
  const std::string script = "[ $RANK = 1 ] && exit 77; exec sleep 100";
  const std::vector<std::string> flags = {"--max-restarts", "3", "--no-restart-exit-codes", "77"};
  auto first = LaunchNode(0, port_, script, flags);
  auto second = LaunchNode(1, port_, script, flags);
  EXPECT_EQ(first->Wait(), 77);
  EXPECT_EQ(second->Wait(), 77);
  EXPECT_THAT(first->err(), HasSubstr("not restarted: exit code 77 is not worth another try"));
  EXPECT_THAT(first->err(), Not(HasSubstr("as round 2")));
  EXPECT_EQ(first->err(), second->err());
}

TEST_F(TwoNodesRestartsTest, NodesThatDisagreeAreTold) {
  auto first = LaunchNode(0, port_, "true", {"--restart-delay", "1:8"});
  ASSERT_TRUE(first->WaitForText(" s left"));
  auto other = LaunchNode(1, port_, "true", {"--restart-delay", "1"});
  EXPECT_EQ(other->Wait(), 1);
  EXPECT_THAT(other->err(),
              HasSubstr("was started with --restart-delay 1, the run has --restart-delay 1:8"));
  auto second = LaunchNode(1, port_, "true", {"--restart-delay", "1:8"});
  EXPECT_EQ(second->Wait(), 0);
  EXPECT_EQ(first->Wait(), 0);
}

}  // namespace
}  // namespace ddprun
