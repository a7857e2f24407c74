// SPDX-License-Identifier: Apache-2.0
// Workers that live and do not go on: each is named with its stacks before it is killed.
#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "proto/text.h"
#include "tests/integration/launcher/ddprun_fixture.h"

#include "tests/testing/paths.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class HangsTest : public DdprunPortTest {
 protected:
  // Rank r hangs as the r-th says.
  std::unique_ptr<RunningProcess> Hang(std::vector<std::string> flags,
                                       const std::vector<std::string>& how) const {
    flags.push_back(BuildPath("tests/hanging_worker"));
    flags.insert(flags.end(), how.begin(), how.end());
    return Launch(std::move(flags));
  }
  nlohmann::json Verdict(const std::string& name = "verdict") const {
    return nlohmann::json::parse(Content(name))["cause"];
  }
  std::string InFolder(const std::string& name) const { return folder_ + "/" + name; }
};

TEST_F(HangsTest, ADeadlockIsNamedWithTheFunctionsOfBothThreads) {
  auto run = Hang({"--hang-timeout", "1", "--rdzv-id", "r", "--log-dir", InFolder("logs"),
                   "--verdict-file", InFolder("verdict")},
                  {"deadlock"});
  EXPECT_EQ(run->Wait(), 124);
  EXPECT_THAT(run->err(), HasSubstr("ddprun: run failed: rank 0 (local rank 0 on host "));
  EXPECT_THAT(run->err(), HasSubstr(" s: it is in step 17 (data)"));
  EXPECT_THAT(run->err(), HasSubstr("  where rank 0 was:\n"));
  const nlohmann::json cause = Verdict();
  EXPECT_EQ(cause["kind"], "worker_hung");
  EXPECT_EQ(cause["exit_code"], 124);
  EXPECT_EQ(cause["hang"]["step"], 17);
  EXPECT_EQ(cause["hang"]["section"], "data");
  EXPECT_GE(cause["hang"]["silent_seconds"], 1.0);
  for (const std::string& said :
       {cause["hang"]["stack"].dump(), Content("logs/r/round_1/rank_0/stacks.txt"), run->err()}) {
    EXPECT_THAT(said, HasSubstr("TakeLeftThenRight"));
    EXPECT_THAT(said, HasSubstr("TakeRightThenLeft"));
  }
  EXPECT_THAT(Content("logs/r/round_1/rank_0/stacks.txt"), HasSubstr("=== read at 20"));
}

TEST_F(HangsTest, ABusyLoopIsNamedWithItsFunctionAndTheWorkersThatWaitForItAreNot) {
  auto run =
      Hang({"--hang-timeout", "1", "--nproc-per-node", "3", "--verdict-file", InFolder("verdict")},
           {"wait", "spin", "wait"});
  EXPECT_EQ(run->Wait(), 124);
  const nlohmann::json cause = Verdict();
  EXPECT_EQ(cause["rank"], 1);
  EXPECT_EQ(cause["hang"]["others_step"], 18);
  EXPECT_THAT(cause["hang"]["stack"].dump(), HasSubstr("SpinForEver"));
  EXPECT_THAT(run->err(), HasSubstr("in step 17 (data), others wait in step 18"));
  EXPECT_THAT(run->err(), HasSubstr("stacks of rank 2 (pid ")) << "the victims' are shown, too";
  EXPECT_THAT(run->err(), HasSubstr("WaitForPeers"));
}

TEST_F(HangsTest, AStoppedWorkerIsNamedAsSuch) {
  auto run = Hang({"--hang-timeout", "1", "--verdict-file", InFolder("verdict")}, {"steady"});
  ASSERT_TRUE(run->WaitForText("told"));
  kill(NumberAfter("pid=", run->out()), SIGSTOP);
  EXPECT_EQ(run->Wait(), 124);
  EXPECT_THAT(Verdict()["hang"]["stack"].dump(), HasSubstr("state T"));
  EXPECT_EQ(Verdict()["hang"]["section"], "step");
}

TEST_F(HangsTest, OneThatNeverTellsOfProgressIsWatchedIfThatIsAskedFor) {
  auto start = Hang({"--init-timeout", "1"}, {"silent"});
  EXPECT_EQ(start->Wait(), 124);
  EXPECT_THAT(start->err(), HasSubstr(" has reported no progress since its start, for "));
  auto output = Launch({"--heartbeat-timeout", "1", "sh", "-c", "echo once; exec sleep 100"});
  EXPECT_EQ(output->Wait(), 124);
  EXPECT_THAT(output->err(), HasSubstr(" had no output for "));
  EXPECT_THAT(output->err(), HasSubstr("    once\n")) << "its last lines";
}

TEST_F(HangsTest, TheOddOneIsNamedAcrossNodesWithItsStack) {
  const auto node = [&](int rank, const std::string& verdict) {
    return Hang({"--nnodes", "2", "--node-rank", std::to_string(rank), "--master-addr", "127.0.0.1",
                 "--master-port", std::to_string(port_), "--hang-timeout", "1", "--verdict-file",
                 InFolder(verdict)},
                {"wait", "spin"});
  };
  auto first = node(0, "first");
  auto second = node(1, "second");
  EXPECT_EQ(first->Wait(), 124);
  EXPECT_EQ(second->Wait(), 124);
  EXPECT_EQ(Verdict("first"), Verdict("second"));
  EXPECT_EQ(Verdict("first")["rank"], 1);
  EXPECT_EQ(Verdict("first")["hang"]["others_step"], 18);
  EXPECT_THAT(Verdict("first")["hang"]["stack"].dump(), HasSubstr("SpinForEver"));
  EXPECT_THAT(first->err(), HasSubstr("WaitForPeers")) << "its own worker's";
}

TEST_F(HangsTest, AHangUsesARestart) {
  const std::string script = std::string("[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; exec ") +
                             ShellQuote(BuildPath("tests/hanging_worker")) + " spin";
  auto run = Launch({"--hang-timeout", "1", "--max-restarts", "1", "sh", "-c", script});
  EXPECT_EQ(run->Wait(), 0) << run->err();
  EXPECT_THAT(run->err(), HasSubstr("restart 1 of 1 as round 2: rank 0 "));
}

TEST_F(HangsTest, WhereHangsAreOnlyReportedTheWorkerLivesOn) {
  auto run = Hang({"--hang-timeout", "1", "--on-hang", "report"}, {"spin"});
  ASSERT_TRUE(run->WaitForText("SpinForEver"));
  const pid_t worker = NumberAfter("pid=", run->out());
  EXPECT_EQ(kill(worker, 0), 0);
  run->Signal(SIGTERM);
  EXPECT_EQ(run->Wait(), 143);
  EXPECT_THAT(run->err(), Not(HasSubstr("run failed")));
}

TEST_F(HangsTest, AnAgentThatWasStoppedBlamesNobody_RealTime) {
  auto run = Hang({"--hang-timeout", "2"}, {"steady"});
  ASSERT_TRUE(run->WaitForText("told"));
  const pid_t worker = NumberAfter("pid=", run->out());
  const pid_t agent = AgentOf(*run);
  // All of it, as when a laptop is closed; longer than the worker may be silent.
  kill(agent, SIGSTOP);
  kill(worker, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(6));
  kill(agent, SIGCONT);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  kill(worker, SIGCONT);
  std::this_thread::sleep_for(std::chrono::seconds(3));
  run->Signal(SIGTERM);
  EXPECT_EQ(run->Wait(), 143);
  EXPECT_THAT(run->err(), Not(HasSubstr("no progress")));
}

}  // namespace
}  // namespace ddprun
