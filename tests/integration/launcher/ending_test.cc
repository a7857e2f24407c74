// SPDX-License-Identifier: Apache-2.0
// However a run ends, nothing of it is left.
#include <sys/stat.h>

#include <optional>

#include "proto/text.h"
#include "tests/integration/launcher/ddprun_fixture.h"
#include "tests/testing/paths.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

// Its workers by SIGTERM: nothing else would end them before the test's deadline.
TEST_F(DdprunTest, SigtermEndsTheRun) {
  for (const auto& [signal, exit_code] :
       {std::pair{SIGTERM, 143}, {SIGINT, 130}, {SIGHUP, 129}, {SIGQUIT, 131}}) {
    auto run = Launch({"--nproc-per-node", "2", "--term-timeout", "3600", "sh", "-c",
                       "echo pid=$$; exec sleep 1000"});
    ASSERT_TRUE(run->WaitForText("pid=", 2));
    const ProcessWatch worker(NumberAfter("pid=", run->out()));
    ASSERT_TRUE(worker.found());
    run->Signal(signal);
    EXPECT_EQ(run->Wait(), exit_code);
    EXPECT_TRUE(worker.WaitForEnd());
  }
}

TEST_F(DdprunTest, AWorkerMayUseTheGraceToCleanUp) {
  auto run =
      Launch({"sh", "-c", "trap 'echo cleaned up; exit 0' TERM; echo ready; sleep 100 & wait"});
  ASSERT_TRUE(run->WaitForText("ready"));
  run->Signal(SIGTERM);
  EXPECT_EQ(run->Wait(), 143);
  EXPECT_THAT(run->out(), HasSubstr("[0] cleaned up\n"));
}

TEST_F(DdprunTest, NohupIsRespected) {
  std::vector<std::string> arguments = {
      "sh",
      "-c",
      "trap '' HUP; exec \"$@\"",
      "sh",
      BuildPath("bin/ddprun"),
      "sh",
      "-c",
      "echo ready; while [ ! -e " + folder_ + "/go ]; do sleep 0.01; done; exit 4"};
  RunningProcess run(arguments, variables_);
  ASSERT_TRUE(run.WaitForText("ready"));
  run.Signal(SIGHUP);
  std::ofstream(folder_ + "/go") << "x";
  EXPECT_EQ(run.Wait(), 4);
}

TEST_F(DdprunTest, KillingDdprunLeavesNoProcess) {
  auto run = Launch({"--nproc-per-node", "2", "sh", "-c",
                     "[ $RANK = 0 ] || exec sleep 100; setsid sh -c 'echo far=$$; exec sleep 100' "
                     "& echo near=$$; wait"});
  ASSERT_TRUE(run->WaitForText("far="));
  ASSERT_TRUE(run->WaitForText("near="));
  const ProcessWatch near(NumberAfter("near=", run->out()));
  const ProcessWatch far(NumberAfter("far=", run->out()));
  const ProcessWatch agent(AgentOf(*run));
  ASSERT_TRUE(near.found() && far.found() && agent.found());
  run->Signal(SIGKILL);
  EXPECT_EQ(run->Wait(), 137);
  EXPECT_TRUE(near.WaitForEnd());
  EXPECT_TRUE(far.WaitForEnd());
  EXPECT_TRUE(agent.WaitForEnd());
}

TEST_F(DdprunTest, KillingTheAgentLeavesNoProcess) {
  auto run =
      Launch({"sh", "-c", "setsid sh -c 'echo far=$$; exec sleep 100' & echo near=$$; wait"});
  ASSERT_TRUE(run->WaitForText("far="));
  ASSERT_TRUE(run->WaitForText("near="));
  const ProcessWatch near(NumberAfter("near=", run->out()));
  const ProcessWatch far(NumberAfter("far=", run->out()));
  ASSERT_TRUE(near.found() && far.found());
  kill(AgentOf(*run), SIGKILL);
  EXPECT_EQ(run->Wait(), 137);
  EXPECT_THAT(run->err(), HasSubstr("was killed by signal 9 (SIGKILL)"));
  EXPECT_TRUE(near.WaitForEnd());
  EXPECT_TRUE(far.WaitForEnd());
}

// A run with a worker, and a process that has left it for a session of its own; and who guards it.
class GuardsTest : public DdprunTest {
 protected:
  void SetUp() override {
    DdprunTest::SetUp();
    run_ = Launch({"sh", "-c", "setsid sh -c 'echo far=$$; exec sleep 100' & echo near=$$; wait"});
    ASSERT_TRUE(run_->WaitForText("far=") && run_->WaitForText("near="));
    near_.emplace(NumberAfter("near=", run_->out()));
    far_.emplace(NumberAfter("far=", run_->out()));
    keeper_pid_ = KeeperOf(*run_);
    agent_pid_ = AgentOf(*run_);
    keeper_.emplace(keeper_pid_);
    agent_.emplace(agent_pid_);
    ASSERT_TRUE(near_->found() && far_->found() && keeper_->found() && agent_->found());
  }

  void ExpectNothingLeft() const {
    EXPECT_TRUE(near_->WaitForEnd());
    EXPECT_TRUE(far_->WaitForEnd());
    EXPECT_TRUE(agent_->WaitForEnd());
    EXPECT_TRUE(keeper_->WaitForEnd());
  }

  std::unique_ptr<RunningProcess> run_;
  pid_t keeper_pid_ = -1;
  pid_t agent_pid_ = -1;
  std::optional<ProcessWatch> near_, far_, keeper_, agent_;
};

TEST_F(GuardsTest, KillingTheKeeperLeavesNoProcess) {
  kill(keeper_pid_, SIGKILL);
  EXPECT_EQ(run_->Wait(), 137);
  EXPECT_THAT(run_->err(), HasSubstr("ddprun: the keeper (pid "));
  ExpectNothingLeft();
}

TEST_F(GuardsTest, KillingWardenAndAgentAtOnceLeavesNoProcess) {
  run_->Signal(SIGKILL);
  kill(agent_pid_, SIGKILL);
  EXPECT_EQ(run_->Wait(), 137);
  ExpectNothingLeft();
}

TEST_F(GuardsTest, KillingKeeperAndAgentAtOnceLeavesNoProcess) {
  kill(keeper_pid_, SIGKILL);
  kill(agent_pid_, SIGKILL);
  EXPECT_EQ(run_->Wait(), 137);
  ExpectNothingLeft();
}

TEST_F(GuardsTest, AStoppedAgentDoesNotOutliveTheWarden) {
  kill(agent_pid_, SIGSTOP);
  run_->Signal(SIGKILL);
  EXPECT_EQ(run_->Wait(), 137);
  ExpectNothingLeft();
}

TEST_F(GuardsTest, TheKeeperIsNotCalledDdprun) {
  const auto content = [](const std::string& path) {
    std::ifstream file(path);
    std::string text;
    std::getline(file, text);
    return text;
  };
  const std::string folder = "/proc/" + std::to_string(keeper_pid_);
  EXPECT_EQ(content(folder + "/comm"), "keeper");
  EXPECT_EQ(content(folder + "/cmdline").find("ddprun"), std::string::npos);
  run_->Signal(SIGTERM);
  EXPECT_EQ(run_->Wait(), 143);
}

TEST_F(DdprunTest, AGrandchildWithASessionOfItsOwnEndsWithTheRound) {
  const std::string file = folder_ + "/far";
  auto run = Launch({"--max-restarts", "1", "sh", "-c",
                     "if [ $DDPRUN_ROUND = 2 ]; then kill -0 $(cat " + file +
                         ") && echo alive; exit 0; fi; "
                         "setsid sh -c 'echo $$ > " +
                         file +
                         "; exec sleep 100' & "
                         "while [ ! -s " +
                         file + " ]; do sleep 0.01; done; exit 1"});
  EXPECT_EQ(run->Wait(), 0) << run->err();
  EXPECT_EQ(run->out(), "");
}

// What a worker that ends with 0 leaves behind: the upload of a checkpoint, a logger's service.
class LeftoversTest : public DdprunTest {
 protected:
  void SetUp() override {
    DdprunTest::SetUp();
    ASSERT_EQ(mkfifo((folder_ + "/go").c_str(), 0600), 0);
  }

  // A worker that leaves `script` behind, in a session of its own or in its process group.
  std::unique_ptr<RunningProcess> Leave(const std::string& script, std::vector<std::string> flags,
                                        bool far = true) const {
    std::ofstream(folder_ + "/upload.sh") << script;
    flags.insert(flags.end(), {"sh", "-c",
                               std::string(far ? "setsid " : "") + "sh " + folder_ +
                                   "/upload.sh & read line < " + folder_ + "/go; exit 0"});
    auto run = Launch(flags);
    EXPECT_TRUE(run->WaitForText("pid=")) << run->err();
    std::ofstream(folder_ + "/go") << "x\n";  // it has its handlers, and the worker may end
    return run;
  }
};

TEST_F(LeftoversTest, MayFinish) {
  for (const bool far : {true, false}) {
    ASSERT_EQ(mkfifo((folder_ + "/more").c_str(), 0600), 0);
    auto run =
        Leave("echo pid=$$; read line < " + folder_ + "/more; echo done > " + folder_ + "/uploaded",
              {"--leftover-timeout", "3600"}, far);
    ASSERT_TRUE(run->WaitForText("waiting up to 3")) << run->err();
    EXPECT_THAT(run->err(),
                HasSubstr("processes that the workers left behind: sh " + folder_ +
                          "/upload.sh (pid " + std::to_string(NumberAfter("pid=", run->out()))));
    std::ofstream(folder_ + "/more") << "x\n";
    EXPECT_EQ(run->Wait(), 0);
    EXPECT_EQ(Content("uploaded"), "done\n");
    std::filesystem::remove(folder_ + "/uploaded");
    std::filesystem::remove(folder_ + "/more");
  }
}

TEST_F(LeftoversTest, GetSigtermWhenTheirTimeIsOver) {
  auto run = Leave("trap 'echo saved; exit 0' TERM; echo pid=$$; sleep 1000 & wait",
                   {"--leftover-timeout", "0", "--event-log", folder_ + "/events"});
  EXPECT_EQ(run->Wait(), 0);
  EXPECT_THAT(run->out(), HasSubstr("[0] saved\n"));
  EXPECT_THAT(run->err(), HasSubstr("ddprun: sent SIGTERM to processes that the workers left "
                                    "behind: "));
  EXPECT_THAT(Content("events"), HasSubstr("\"event\":\"workers.left_behind\""));
}

TEST_F(LeftoversTest, GetSigkillIfTheyAreDeafToIt_RealTime) {
  auto run = Leave("trap '' TERM; echo pid=$$; sleep 1000", {"--leftover-timeout", "0"});
  const ProcessWatch left(NumberAfter("pid=", run->out()));
  EXPECT_EQ(run->Wait(), 0);
  EXPECT_TRUE(left.WaitForEnd());
  EXPECT_THAT(run->err(), HasSubstr("ddprun: sent SIGKILL to processes that the workers left "
                                    "behind: sh "));
}

TEST_F(LeftoversTest, ASignalDoesNotWaitForThem) {
  auto run = Leave("trap 'echo saved; exit 0' TERM; echo pid=$$; sleep 1000 & wait",
                   {"--leftover-timeout", "3600"});
  ASSERT_TRUE(run->WaitForText("waiting up to 3")) << run->err();
  run->Signal(SIGTERM);
  EXPECT_EQ(run->Wait(), 143);
  EXPECT_THAT(run->out(), HasSubstr("[0] saved\n"));
}

TEST_F(DdprunTest, AConsoleThatIsGoneEndsNothing) {
  const std::string worker =
      "for i in 1 2 3 4 5; do seq 10000; done; touch " + folder_ + "/done; exit 3";
  const std::string ddprun = ShellQuote(BuildPath("bin/ddprun")) + " sh -c '" + worker + "'";
  RunningProcess run(
      {"sh", "-c", "{ " + ddprun + "; echo $? > " + folder_ + "/code; } | head -n 1"}, variables_);
  EXPECT_EQ(run.Wait(), 0);
  EXPECT_EQ(Content("code"), "3\n");
  EXPECT_EQ(run.out(), "[0] 1\n");
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/done"));
}

TEST_F(DdprunTest, EveryLineOfATalkativeWorkerArrives) {
  auto run = Launch({"--nproc-per-node", "2", "seq", "200000"});
  EXPECT_EQ(run->Wait(), 0);
  EXPECT_EQ(std::count(run->out().begin(), run->out().end(), '\n'), 400000);
  EXPECT_THAT(run->out(), HasSubstr("\n[1] 199999\n"));
}

}  // namespace
}  // namespace ddprun
