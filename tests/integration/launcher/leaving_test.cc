// SPDX-License-Identifier: Apache-2.0
// A node of two that is told to end, while workers take their time to save what they have.
#include <sys/stat.h>

#include <thread>
#include <tuple>

#include "launcher/base/limits.h"
#include "tests/integration/launcher/ddprun_fixture.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class LeavingTest : public DdprunPortTest {
 protected:
  void SetUp() override {
    DdprunPortTest::SetUp();
    ASSERT_EQ(mkfifo((folder_ + "/go").c_str(), 0600), 0);
  }

  // Rank 1 saves until it may go on; rank 0 ends at once.
  void StartBoth(std::vector<std::string> flags = {}) {
    const std::string save = "echo saving; read line < " + folder_ + "/go; echo saved; exit 0";
    const std::string script =
        "[ $RANK = 0 ] || trap '" + save + "' TERM INT; echo ready; while :; do sleep 0.05; done";
    flags.insert(flags.end(), {"--term-timeout", "60"});
    first_ = LaunchNode(0, port_, script, flags);
    second_ = LaunchNode(1, port_, script, flags);
    ASSERT_TRUE(first_->WaitForText("ready") && second_->WaitForText("ready"));
  }
  void LetSaveEnd() const { std::ofstream(folder_ + "/go") << "x\n"; }

  void ExpectSaved() {
    EXPECT_THAT(second_->out(), HasSubstr("saved"));
    EXPECT_THAT(second_->err(), Not(HasSubstr("lost")));
    EXPECT_THAT(second_->err(), Not(HasSubstr("broke")));
    EXPECT_THAT(second_->err(), Not(HasSubstr("are killed")));
  }

  std::unique_ptr<RunningProcess> first_;
  std::unique_ptr<RunningProcess> second_;
};

TEST_F(LeavingTest, ANodeThatDoesNotHostHearsThatItHasLeft) {
  for (const auto& [signal, name, exit_code] :
       {std::tuple{SIGINT, "SIGINT", 130}, {SIGTERM, "SIGTERM", 143}, {SIGUSR1, "SIGUSR1", 138}}) {
    StartBoth();
    second_->Signal(signal);
    ASSERT_TRUE(second_->WaitForText("saving")) << second_->err();
    LetSaveEnd();
    EXPECT_EQ(second_->Wait(), exit_code);
    EXPECT_EQ(first_->Wait(), exit_code);
    ExpectSaved();
    EXPECT_THAT(second_->err(), HasSubstr("ddprun: this node has left the run: node "));
    EXPECT_THAT(second_->err(), HasSubstr(std::string("(node rank 1) was interrupted by ") + name));
    EXPECT_THAT(first_->err(), HasSubstr("ddprun: run ended: node "));
    EXPECT_THAT(first_->err(), HasSubstr(std::string("(node rank 1) was interrupted by ") + name));
  }
}

TEST_F(LeavingTest, TheNodeThatHostsLeavesLast) {
  StartBoth();
  first_->Signal(SIGINT);
  ASSERT_TRUE(second_->WaitForText("saving")) << second_->err();
  ASSERT_TRUE(first_->WaitForText("waiting for the workers of the other nodes")) << first_->err();
  LetSaveEnd();
  EXPECT_EQ(first_->Wait(), 130);
  EXPECT_EQ(second_->Wait(), 130);
  ExpectSaved();
  EXPECT_THAT(first_->err(), HasSubstr("ddprun: run ended: ddprun on "));
  EXPECT_THAT(second_->err(), HasSubstr("(node rank 0) was interrupted by SIGINT"));
}

// As a scheduler does, or a person with ddprun -H.
TEST_F(LeavingTest, TheNodeThatHostsLeavesLastAlsoWhereAllAreToldToEnd) {
  StartBoth();
  second_->Signal(SIGTERM);
  first_->Signal(SIGTERM);
  ASSERT_TRUE(second_->WaitForText("saving")) << second_->err();
  ASSERT_TRUE(first_->WaitForText("waiting for the workers of the other nodes")) << first_->err();
  LetSaveEnd();
  EXPECT_EQ(first_->Wait(), 143);
  EXPECT_EQ(second_->Wait(), 143);
  ExpectSaved();
}

TEST_F(LeavingTest, ASecondSignalDoesNotWaitAndTellsTheOthersWhy_RealTime) {
  StartBoth();
  first_->Signal(SIGINT);
  ASSERT_TRUE(second_->WaitForText("saving")) << second_->err();
  std::this_thread::sleep_for(kSignalEchoTime);  // a second one sooner is taken for an echo
  first_->Signal(SIGINT);
  EXPECT_EQ(first_->Wait(), 130);
  LetSaveEnd();
  EXPECT_EQ(second_->Wait(), 130);
  ExpectSaved();
  EXPECT_THAT(second_->err(), HasSubstr("(node rank 0) was interrupted by SIGINT"));
}

TEST_F(LeavingTest, AFirstSignalWhileTheRunEndsKillsNobody) {
  StartBoth();
  kill(AgentOf(*first_), SIGKILL);  // the service is gone, thus the run is ending
  ASSERT_TRUE(second_->WaitForText("saving")) << second_->err();
  second_->Signal(SIGINT);
  ASSERT_TRUE(second_->WaitForText("got SIGINT: the run is ending already")) << second_->err();
  LetSaveEnd();
  EXPECT_EQ(second_->Wait(), 1);
  EXPECT_THAT(second_->out(), HasSubstr("saved"));
  EXPECT_EQ(first_->Wait(), 137);
}

}  // namespace
}  // namespace ddprun
